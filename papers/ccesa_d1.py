"""CCESA App. D.1: bytes that a client needs beyond federated averaging, told apart message by message.

D.1 counts public keys and shares, with nobody lost. Real messages also say whose they are, and a sealed share
has a tag; what D.1 counts and what it does not are added up separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import log, sqrt
from typing import Any

from papers.entry import Cell, Entry, Evidence, Place
from simfl.crypto.keys import KEY_BYTES, TAG_BYTES
from simfl.crypto.shamir import SHARE_BYTES
from simfl.dataplane.handles import F32, Handle
from simfl.dataplane.shadow import ShadowOps
from simfl.protocols import graph_design
from simfl.protocols import keyed_messages as sent
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import INT_BYTES, SERVER, Params, Update
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy, Streams

USERS = (100, 500)
D, Q = 1000, 2**32 - 5
COUNTED = ("public keys", "shares")
"""Of D.1; the other parts it leaves out."""
RESOURCES = (
    (1000, 0.25, "section 5.2", 0.5),
    (1000, 0.25, "Fig. 4's caption", 0.75),
    (40, 0.7, "App. B.1 and Fig. B.1's caption", 0.7),
)
"""n, p that is sufficient, and the share of SA's resources that is said to be needed."""
NEAR = 0.05


def parts(message: Any, d: int) -> Iterator[tuple[str, int]]:
    """Yield the bytes of a message by what they are, without the d elements of an upload."""
    match message:
        case sent.Invite():
            yield "numbers", message.size_bytes
        case sent.Advertise(publics):
            yield "public keys", publics.size_bytes
        case sent.Roster(_, publics):
            own = 2 * KEY_BYTES
            yield "own keys again", own
            yield "public keys", publics.size_bytes - own
            yield "numbers", message.size_bytes - publics.size_bytes
        case sent.Shares(sealed) | sent.Inbox(_, sealed):
            tags = sealed.rows * TAG_BYTES
            yield "tags", tags
            yield "shares", sealed.size_bytes - tags
            yield "numbers", message.size_bytes - sealed.size_bytes
        case sent.MaskedUpload(masked):
            yield "weight", masked.size_bytes - INT_BYTES * d
        case sent.Survivors():
            yield "list of survivors", message.size_bytes
        case sent.Answer(content):
            yield "shares", content.size_bytes
        case _:
            raise TypeError(f"{message.kind} is no message of a pairwise round")


def parameters(protocol: str, n: int, d: int) -> Params:
    """p* without losses and t of Remark 4; SA has t = n / 2 + 1."""
    p = graph_design.p_star(n, 0.0) if protocol == "ccesa" else 1.0
    t = graph_design.threshold(n, p) if protocol == "ccesa" else n // 2 + 1
    return Params(d=d, q=Q, T=n // 2, t=t, p=p)


def counted(protocol: str, n: int, d: int = D) -> tuple[Counter[str], float]:
    """Return the mean bytes of a client by what they are, and its mean number of neighbours."""
    kind, params, ops = PROTOCOLS[protocol](), parameters(protocol, n, d), ShadowOps(Q)
    root = Streams(ENTRY.seed).bytes("d1", protocol)
    server = kind.server(range(n), params, ops, Entropy(root, SERVER, 0))
    clients = {user: kind.client(user, params, ops, Entropy(root, user, 0)) for user in range(n)}
    done = run_round(server, clients, {user: Update(Handle(1, d, F32), 1) for user in range(n)})
    if done.result is None:
        raise ValueError(f"{protocol}: no result: {done.reason}")
    total, neighbours = Counter[str](), 0
    for _, _, message in done.sent:
        for name, size in parts(message, d):
            total[name] += size
        neighbours += message.sealed.rows if isinstance(message, sent.Shares) else 0
    return Counter({name: size / n for name, size in total.items()}), neighbours / n


def stated(neighbours: float) -> float:
    """D.1: 2 (|Adj| + 1) a_K + (5 |Adj| + 1) a_S, in bytes.

    >>> stated(99)  # 2 n a_K + (5 n - 4) a_S of SA, n = 100
    24256
    """
    return 2 * (neighbours + 1) * KEY_BYTES + (5 * neighbours + 1) * SHARE_BYTES


def beyond_by_hand(neighbours: float) -> float:
    """Bytes that D.1 leaves out: for each neighbour two tags and three numbers (in the roster, the inbox and
    the list of survivors); for itself its two keys and two numbers, and three numbers more (the round's, t,
    and the weight of its update)."""
    return (2 * TAG_BYTES + 3 * INT_BYTES) * neighbours + 2 * KEY_BYTES + 5 * INT_BYTES


def turbo(bytes_of_client: float, m: int = 10**6, n: int = 100, L: int = 10) -> float:
    """A client's bytes as a share of Turbo-aggregate's 4 m n R / L bits, R = 32 (section 1)."""
    return bytes_of_client / (4 * m * n * 4 / L)


def run(place: Place) -> Evidence:
    """B of CCESA and SA beside D.1, what is beyond it, and Turbo-aggregate's share."""
    cells, totals = [], dict[tuple[str, int], float]()
    for n in USERS:
        for protocol, name in (("ccesa", "CCESA"), ("secagg", "SA")):
            found, neighbours = counted(protocol, n)
            totals[protocol, n] = sum(found.values())
            cells += of_protocol(f"{name}, n = {n}", found, neighbours)
    ratios = [totals["ccesa", n] / totals["secagg", n] for n in USERS]
    statement = "B_CCESA / B_SA falls with n"
    ours = statement if ratios == sorted(ratios, reverse=True) else "otherwise"
    words = ", ".join(f"{ratio:.3f} at n = {n}" for n, ratio in zip(USERS, ratios, strict=True))
    cells.append(Cell("as n grows", statement, ours, compare="order", remark=words, basis="by construction"))
    formula = sqrt(100 * log(100)) * (2 * 256 + 5 * 256) / 8 + 4 * 10**6
    by_formula = percent("by the formula of section 1", turbo(formula), "n = 100, m = 10^6")
    cells.append(replace(by_formula, basis="by construction"))
    real = sum(counted("ccesa", 100, 10**6)[0].values()) + 4 * 10**6
    words = "every byte up and down of a round with m = 10^6 but for the model that the server sends"
    cells.append(percent("counted", turbo(real), words))
    return Evidence((*cells, *resources()))


def percent(how: str, share: float, remark: str) -> Cell:
    """Section 1's share of Turbo-aggregate's bytes, which is printed as a whole number."""
    words = f"{100 * share:.3f} %; {remark}"
    return Cell(f"of Turbo-aggregate, {how}", "3 %", f"{100 * share:.0f} %", compare="order", remark=words)


def resources() -> list[Cell]:
    """The share of SA's resources at the p that are called sufficient, by D.1."""
    return [
        Cell(
            f"of SA's resources, n = {n}, p = {p}: {where}", printed, stated((n - 1) * p) / stated(n - 1), "",
            bound=NEAR, remark="D.1's formula at the mean degree", basis="by construction",
        )
        for n, p, where, printed in RESOURCES
    ]  # fmt: skip


def of_protocol(words: str, found: Counter[str], neighbours: float) -> list[Cell]:
    """What D.1 counts must be equal; the rest is told part by part."""
    exact, total = sum(found[name] for name in COUNTED), sum(found.values())
    formula = stated(neighbours)
    remark = f"keys and shares of {neighbours:.2f} neighbours; {total:,.0f} bytes with all else"
    cells = [Cell(f"{words}: B", round(formula, 6), round(exact, 6), "bytes", bound=0, remark=remark)]
    beyond = {name: size for name, size in found.items() if name not in COUNTED}
    extra, by_hand = sum(beyond.values()), round(beyond_by_hand(neighbours), 6)
    shares = ", ".join(f"{name} {100 * size / formula:.2g} %" for name, size in beyond.items())
    remark = f"{100 * extra / formula:.1f} % of B: {shares}"
    label = f"{words}: beyond D.1"
    beyond_cell = Cell(label, by_hand, round(extra, 6), "bytes", bound=0, remark=remark)
    cells.append(replace(beyond_cell, basis="by construction"))
    return cells


ENTRY = Entry(
    name="ccesa_d1",
    paper="CCESA",
    where="App. D.1, section 1",
    title="Additional bytes of a client, and the share of Turbo-aggregate's",
    on="the messages of shadow rounds of the protocols' own machines, no dropouts, p = p*",
    how="a_K = 32 and a_S = 36 bytes. Keys and shares must equal D.1's formula to the byte, for the mean"
    " number of neighbours of the round's graph. The rest, 44 bytes a neighbour against 244, must"
    " equal a count by hand, which is in the paper's column. Section 1's 3 % must be ours, rounded. Of"
    " SA's resources, which the paper takes as proportional to n p, the printed share must be met within 5"
    " %.",
    run=run,
    disagreement="D.1 leaves out the tags of sealed shares, the owners' numbers of keys and shares,"
    " and the list of survivors. The paper has 50 % of SA's resources in the text and 75 % in the caption"
    " for the same p = 0.25, and gives neither an origin; in proportion to n p it would be a quarter.",
)
