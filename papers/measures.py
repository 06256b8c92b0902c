"""What is counted of a round, in the words of the papers' tables of complexities.

The unit is an element of F_q, four bytes, or an operation on one; a seed, a key and a key agreement are s = 8
of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from papers.counted import Round
from simfl.protocols.machine import SERVER

S = 8
ELEMENTS = {
    **{"x25519": S, "agree": S, "aead_byte": 1 / 4},
    **dict.fromkeys(("prg_element", "field_add", "field_mac", "quantise_element", "real_mac"), 1),
    **dict.fromkeys(("mds_mac", "mds_coefficient", "mds_inverse", "shamir_mac", "lagrange_pair"), 1),
}
"""Elements that an operation stands for; kinds of work that are not here are about no elements."""
DECODING = ("shamir_mac", "lagrange_pair", "mds_mac", "mds_inverse")
SHARES = ("shamir_mac",)


def operations(work: Mapping[str, float], only: tuple[str, ...] = ()) -> float:
    """Operations on elements."""
    return sum(n * ELEMENTS.get(kind, 0) for kind, n in work.items() if not only or kind in only)


ONLINE = ("upload", "recovery")


def _mean(r: Round, of: Mapping[tuple[int, str], int], phases: tuple[str, ...]) -> float:
    return sum(of[user, phase] for user in r.survivors for phase in phases) / len(r.survivors) / 4


def offline_communication(r: Round) -> float:
    return _mean(r, r.up, ("offline",)) + _mean(r, r.down, ("offline",))


def offline_computation(r: Round) -> float:
    return operations(r.of_users("offline"))


def offline_storage(r: Round) -> float:
    return sum(r.stored[user] for user in r.survivors) / len(r.survivors) / 4


def online_communication(r: Round) -> float:
    return _mean(r, r.up, ONLINE) + _mean(r, r.down, ONLINE)


def online_communication_server(r: Round) -> float:
    return sum(n for of in (r.up, r.down) for (_, phase), n in of.items() if phase in ONLINE) / 4


def online_computation(r: Round) -> float:
    return sum(operations(r.of_users(phase)) for phase in ONLINE)


def reconstruction(r: Round) -> float:
    return operations(r.of_server("recovery"))


def decoding(r: Round) -> float:
    return operations(r.work[SERVER, "recovery"], DECODING)


def interpolation(r: Round) -> float:
    return operations(r.work[SERVER, "recovery"], SHARES)


def expansion(r: Round) -> float:
    return operations(r.work[SERVER, "recovery"], ("prg_element",))
