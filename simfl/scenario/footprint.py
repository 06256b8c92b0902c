"""What users and data take in memory, in closed form: known before anything is made.

The figures per user are what runs in shadow really took (growth of the resident memory to its peak, in a
round of thousands of users; CPython 3.11, 64 bits), rounded up; a test measures them again. `memory` predicts
the content that a run holds besides. Not counted: the trace, which grows with the rounds, libraries, and what
training needs while it works.
"""

from __future__ import annotations

from collections.abc import Iterator

from simfl.errors import counted
from simfl.scenario import schema
from simfl.scenario.params import common

USER = 350
"""Bytes of a user whom nothing happens to."""
COMES_AND_GOES = 1_500
"""More where presence changes with time: the next change, and the session last looked at."""
JITTER = 2_500
"""More for a member whose links have jitter: two random generators."""
SAMPLE, DEALT = 16, 80
"""Of a sample while it is dealt out, in one piece or not."""


def users_bytes(s: schema.Scenario, name: str) -> int:
    """What the users take, and what they know of each other, under an entry of the protocols."""
    s, entry = s.of(name), s.protocols[name]
    users = s.population.users
    most = (s.buffer.concurrency or users) if s.buffer else s.selection.usual(users)
    members = min(s.cohort, most)
    timed = s.population.availability.changes == "with time"
    followed = users if entry.connected else members  # nobody follows the days of idle users otherwise
    member = entry.member_bytes + (JITTER if s.network.users.jitter_s else 0)
    known = round(entry.pair_bytes * entry.pairs(common(s), users, members))
    coming = followed * COMES_AND_GOES if timed else 0
    return users * (USER + _hand_bytes(s)) + coming + members * member + known


def _hand_bytes(s: schema.Scenario) -> int:
    """What a user's numbers of samples take, and the counts of its labels that `simfl check` shows."""
    data, dealt = s.learning.dataset, s.learning.partition
    classes = data.classes_expected()
    return dealt.hand_bytes(classes) + 16 * classes


def data_bytes(s: schema.Scenario) -> int:
    """What the data set takes while it is made and dealt out, and a pass of evaluation."""
    cut = all(s.of(name).learning.partition.one_piece for name in s.protocols)
    return s.learning.dataset.bytes_needed(SAMPLE if cut else DEALT, s.payload == "real")


def present_bytes(s: schema.Scenario, read_bytes: int = 0) -> int:
    """What is there whatever a round holds. read_bytes: of the data set, once it is read."""
    return max(users_bytes(s, name) for name in s.protocols) + max(data_bytes(s), read_bytes)


def limit_bytes(s: schema.Scenario) -> float:
    """The scenario's limit."""
    return s.memory_limit_gb * 1e9


def check(s: schema.Scenario, every: bool = False) -> Iterator[tuple[str, str]]:
    """Users and data that do not fit, as (dotted path, message): under any entry of the protocols, or, with
    `every`, only where they do not under each of them."""
    name = (min if every else max)(s.protocols, key=lambda name: users_bytes(s, name))
    users, data = users_bytes(s, name), data_bytes(s)
    if users + data > limit_bytes(s):
        who = f"{counted(s.population.users, 'user')} would take {gb(users)} GB (protocol {name})"
        path = "population.users" if users >= data else "learning.dataset"
        yield path, f"{who}, the data set {gb(data)} GB, above memory_limit_gb={s.memory_limit_gb:g}"


def gb(nbytes: float) -> str:
    """Bytes in GB, as messages have it."""
    return f"{nbytes / 1e9:.3g}" if nbytes < 1e12 else f"{nbytes / 1e9:,.0f}"
