"""Memory of users and data in closed form: known before anything is made.

The figures per user are what runs in shadow really took (growth of the resident memory to its peak, in a
round of thousands of users; CPython 3.11, 64 bits), rounded up; a test measures them again. `memory` predicts
the content that a run holds besides. Not counted: the trace, which grows with the rounds, libraries, and what
training needs while it works.
"""

from collections.abc import Iterator

from simfl.errors import counted
from simfl.scenario.schema import Scenario

USER_BYTES = 350  # a user whom nothing happens to
SESSION_BYTES = 1_650  # whose presence changes with time: the next change, and the session last looked at
JITTER_BYTES = 2_500  # a member whose links have jitter: two random generators
SAMPLE_BYTES, DEALT_SAMPLE_BYTES = 16, 80  # a sample while it is dealt out, in one piece or not


def users_bytes(s: Scenario, name: str) -> int:
    """Predict the memory of the users, and of what they know of each other, under one entry."""
    s, entry = s.of(name), s.protocols[name]
    users = s.population.users
    most = (s.buffer.concurrency or users) if s.buffer else s.selection.usual(users)
    members = min(s.cohort, most)
    timed = s.population.availability.changes == "with time"
    followed = users if entry.connected else members  # nobody follows the days of idle users otherwise
    member = entry.member_bytes + (JITTER_BYTES if s.network.users.jitter_s else 0)
    known = round(entry.pair_bytes * entry.pairs(s.common(), users, members))
    coming = followed * SESSION_BYTES if timed else 0
    classes = s.learning.dataset.classes_expected()
    labels = s.learning.partition.hand_bytes(classes) + 16 * classes  # the counts that `simfl check` shows
    return users * (USER_BYTES + labels) + coming + members * member + known


def data_bytes(s: Scenario) -> int:
    """Predict the memory of the data set while it is made and dealt out, and of a pass of evaluation."""
    whole = all(s.of(name).learning.partition.one_piece for name in s.protocols)
    return s.learning.dataset.bytes_needed(SAMPLE_BYTES if whole else DEALT_SAMPLE_BYTES, s.payload == "real")


def present_bytes(s: Scenario, read_bytes: int = 0) -> int:
    """Predict the memory besides the content of rounds. read_bytes: of the data set, once it is read."""
    return max(users_bytes(s, name) for name in s.protocols) + max(data_bytes(s), read_bytes)


def limit_bytes(s: Scenario) -> float:
    return s.memory_limit_gb * 1e9


def check(s: Scenario, every: bool = False) -> Iterator[tuple[str, str]]:
    """Yield users and data that do not fit under some entry, or under every one, as (path, message)."""
    name = (min if every else max)(s.protocols, key=lambda name: users_bytes(s, name))
    users, data = users_bytes(s, name), data_bytes(s)
    if users + data > limit_bytes(s):
        who = f"{counted(s.population.users, 'user')} would take {gb(users)} GB (protocol {name})"
        path = "population.users" if users >= data else "learning.dataset"
        yield path, f"{who}, the data set {gb(data)} GB, above memory_limit_gb={s.memory_limit_gb:g}"


def gb(nbytes: float) -> str:
    """Return bytes in GB for a message."""
    return f"{nbytes / 1e9:.3g}" if nbytes < 1e12 else f"{nbytes / 1e9:,.0f}"
