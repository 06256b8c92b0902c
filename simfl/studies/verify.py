"""Hold a protocol, ours or a stranger's, to everything that ours are held to.

Each check yields findings from small scenarios of the protocol, on the engine and over the loopback; none
asks a machine what is right. What a check cannot look at it says: not tried, and why.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from simfl.crypto import mds, shamir
from simfl.dataplane.handles import F32, U8, U32, Handle
from simfl.dataplane.nodes import Node
from simfl.dataplane.symbolic import NoSymbolicKernel
from simfl.errors import BadInput, DataPlaneError
from simfl.privacy.leaks.views import handles
from simfl.protocols.contracts import BufferServer, ClientMachine, RoundServer, lacking
from simfl.protocols.machine import SERVER, Effects, Ignore, Refuse
from simfl.protocols.protocol import SIGNED_POINTS, SIGNED_STAGES
from simfl.runs.build import build, make_clocks
from simfl.runs.simulation import refuse_in_a_loop
from simfl.runs.watch import WatchedRun
from simfl.studies.explore.rounds import explore, make_cohort
from simfl.studies.subject import PROMISES_NOTHING, USERS, USERS_TO_LOSE, Findings, NotTried
from simfl.studies.subject import Subject as Subject
from simfl.studies.verify_privacy import PRIVACY
from simfl.trace.rows import row_lines

NOBODY_LOST = {"dropout": "none"}
CODES = (mds.encode, mds.code, mds.decode, shamir.share, shamir.reconstruct_many)
"""The kernels that galois is asked about."""


def contract(subject: Subject) -> Findings:
    """Its points and timers are those that scenarios know, and it has a docstring."""
    kind = subject.cohort.kind
    for words, named, known in (
        ("points", kind.round_points, SIGNED_POINTS),
        ("timers", kind.round_timers, SIGNED_STAGES),
    ):
        yield from (f"{words}: {one} is none of {', '.join(known)}" for one in named if one not in known)
    if not {"training", "upload"} <= set(kind.round_points):
        yield "points: every protocol has training and upload"
    if not (type(kind).__doc__ or "").strip():
        yield "it has no docstring: `simfl list` has nothing to say of it"
    yield from _incomplete(subject, BufferServer if kind.asynchronous else RoundServer)


def _incomplete(subject: Subject, server: type) -> Findings:
    """Yield what its machines lack of their contracts."""
    experiment, name = build(subject.cohort.scenario), subject.cohort.protocol
    session = experiment.session(name, make_clocks(experiment)(name))
    setup, users = session.setup, range(session.config.users)
    machine = setup.server(users, setup.params, session.ops, setup.entropy(SERVER, 0))
    client = setup.client(0, setup.params, session.ops, setup.entropy(0, 0))
    for made, contract in ((client, ClientMachine), (machine, server)):
        for name in lacking(made, contract):
            yield f"{type(made).__name__} has no {name}: see simfl.protocols.contracts.{contract.__name__}"


def equal_traces(subject: Subject) -> Findings:
    """The trace is the same whether work is done in line, by a pool of threads, or only counted."""
    long = {"learning.epochs": 5}  # so that training is enough work for a pool to take
    inline = _text(subject.run(long))
    for words, changes in (("by two threads", {"workers": 2}), ("in shadow", {"payload": "shadow"})):
        found = _text(subject.run({**long, **changes}))
        if found != inline:
            pairs = zip(inline.splitlines(), found.splitlines(), strict=False)
            row, (one, other) = next(((k, p) for k, p in enumerate(pairs) if p[0] != p[1]), (0, ("", "")))
            yield f"the trace {words} differs from that in line, first in row {row}: {other} and not {one}"


def exact_sums(subject: Subject) -> Findings:
    """Each aggregate is bit for bit the sum over its members, without losses and with them."""
    for words, changes in (("nobody lost", NOBODY_LOST), ("a user lost", {})):
        for index, right in enumerate(subject.run(changes).exact):
            if right is False:
                yield f"{words}: aggregate {index} is not the sum over its members"
            if right is None and changes:
                yield f"{words}: round {index} has no aggregate"


def oracle(subject: Subject) -> Findings:
    """Coded shares, decodings and shared secrets are those that galois finds (`audit: galois`)."""
    if not any(kernel in CODES for kernel in _kernels(subject)):
        raise NotTried("it neither codes nor shares")
    try:
        subject.run({"audit": "galois"})
    except DataPlaneError as error:
        yield str(error)


def loss_patterns(subject: Subject) -> Findings:
    """Every pattern of losses of four users ends as the protocol's own thresholds say (`simfl explore`)."""
    cohort = make_cohort(subject.protocol, USERS_TO_LOSE, overrides=subject.overrides)
    found = explore(cohort, unlucky=None if len(cohort.detects) == 2 else 1).violation
    if found is not None:
        yield f"{'; '.join(found.laws)} ({found})"


def replays(subject: Subject) -> Findings:
    """The same seed gives the same messages, to the bit, and the same trace."""
    one, other = (subject.run({}) for _ in range(2))
    if _text(one) != _text(other):
        yield "two runs of one seed have different traces"
    elif _content(one) != _content(other):
        yield "two runs of one seed sent different content: its entropy is not the scenario's"


def fresh_masks(subject: Subject) -> Findings:
    """Uploads of one user in two rounds are neither its plain update nor under the same mask."""
    if not subject.cohort.kind.offline and subject.cohort.withstands is None:
        raise NotTried(PROMISES_NOTHING)
    zero = {"learning.lr": 1e-9, "learning.epochs": 1, **NOBODY_LOST}  # updates that quantise to nothing
    uploads: dict[int, list[bytes]] = {}
    for sender, _, message in subject.run(zero).sent:
        for _, part in handles(message):
            if message.point == "upload" and part.content is not None and part.columns > USERS:
                values = np.asarray(part.content).ravel()
                if np.count_nonzero(values) < values.size // 2:
                    yield f"the upload of user {sender} is its update: nothing hides it"
                    return
                uploads.setdefault(sender, []).append(values[:-1].tobytes())
    if not uploads:
        raise NotTried(f"no upload has more than {USERS} elements")
    twice = next((user for user, sent in uploads.items() if len(set(sent)) < len(sent)), None)
    if twice is not None:
        yield f"user {twice} used one mask twice: the difference of its uploads is that of its updates"


def refusals(subject: Subject) -> Findings:
    """A message whose arrays have another shape or type is refused, whoever gets it; the sum stays right."""
    tried = False
    for (kind, key), (words, change) in product(_parts_of_messages(subject), CHANGES.items()):
        what = f"{kind} with {words} in {key}"
        answer = yield from _altered(subject, kind, what, partial(_take_reshaped, key, change))
        tried |= answer is not None
        if answer is not None and not any(isinstance(effect, Refuse) for effect in answer):
            yield f"{what} is not refused"
    if not tried:
        raise NotTried("no message with an array was taken")


def doubles(subject: Subject) -> Findings:
    """A message that comes a second time has no effect, and the sum stays right."""
    tried = False
    for kind in dict.fromkeys(kind for kind, _ in _parts_of_messages(subject)):
        answer = yield from _altered(subject, kind, f"a second {kind}", lambda own, m: (own(m), own(m)))
        tried |= answer is not None
        if not all(isinstance(effect, Ignore | Refuse) for effect in answer or ()):
            yield f"a second {kind} is taken like the first: it must have no effect but Ignore or Refuse"
    if not tried:
        raise NotTried("no message with an array was taken")


def sizes(subject: Subject) -> Findings:
    """The bytes of each message are those of what it holds: arrays, and 4 for each public number."""
    understated: set[str] = set()
    for _, _, message in subject.run({}).sent:
        held = sum(part.size_bytes for _, part in handles(message))
        if message.size_bytes < held and message.kind not in understated:
            understated.add(message.kind)
            yield f"{message.kind} states {message.size_bytes} bytes and holds {held} bytes of arrays"


_CHECKS = (
    contract,
    exact_sums,
    oracle,
    equal_traces,
    replays,
    sizes,
    fresh_masks,
    refusals,
    doubles,
    *PRIVACY,
    loss_patterns,
)
CHECKS: dict[str, Callable[[Subject], Findings]] = {check.__name__: check for check in _CHECKS}


@dataclass(frozen=True)
class Row:
    """The answer of a check for a protocol.

    Attributes:
        name: of the check.
        demand: what the protocol is held to.
        findings: what does not hold.
        not_tried: why it was not tried, as what follows `because`; empty if it was.
    """

    name: str
    demand: str
    findings: tuple[str, ...] = ()
    not_tried: str = ""

    @property
    def outcome(self) -> str:
        return "FAILED" if self.findings else "not tried" if self.not_tried else "ok"


def verify(
    protocol: str, overrides: Mapping[str, Any] | None = None, watch: Callable[[Row], None] | None = None
) -> list[Row]:
    """Hold a protocol to exact sums, every loss, refusals, and what a server and colluders may learn.

    Args:
        protocol: one of ours, or `path.py:Name`.
        overrides: values of its small scenarios by dotted key.
        watch: called with the answer of each check as it is found.

    Returns:
        An answer for each check: its `outcome` is `ok`, `FAILED` (with `findings`) or `not tried`.

    Raises:
        RuntimeError: an event loop runs, as in a notebook.
        BadInput: there is no such protocol, or a scenario is refused.

    >>> import simfl
    >>> rows = simfl.verify("fedavg")
    >>> rows[1].name, rows[1].outcome
    ('exact_sums', 'ok')
    """
    refuse_in_a_loop("verify")
    rows = list[Row]()
    for row in answers(Subject(protocol, overrides or {})):
        if watch is not None:
            watch(row)
        rows.append(row)
    return rows


def answers(subject: Subject, checks: Mapping[str, Callable[[Subject], Findings]] = CHECKS) -> Iterator[Row]:
    """Yield a row for each check; BadInput if a scenario is refused."""
    subject.cohort  # noqa: B018 - so that a setting that does not fit is refused, and not a row
    for name, check in checks.items():
        findings, not_tried = list[str](), ""
        try:
            findings.extend(check(subject))
        except NotTried as reason:
            not_tried = str(reason)
        except NoSymbolicKernel as reason:
            not_tried = f"on symbols {reason}"
        except BadInput:
            raise
        except Exception as error:  # a machine that fails is what is looked for
            findings.append(f"a machine failed: {type(error).__name__}: {error}")
        yield Row(name, (check.__doc__ or "").strip(), tuple(findings), not_tried)


def counted_rows(rows: Sequence[Row]) -> str:
    """Return how many rows are ok, failed, and not tried."""
    number = Counter(row.outcome for row in rows)
    return f"{number['ok']} ok, {number['FAILED']} failed, {number['not tried']} not tried"


# --- parts of the checks ------------------------------------------------------------------------
Take = Callable[[Any], Effects]
"""A machine's own `receive` of a message."""

Change = tuple[int, int, bool]
"""The rows and columns by which an array grows, and True if its elements become others as long."""
CHANGES = {"a row more": (1, 0, False), "a column less": (0, -1, False), "another type": (0, 0, True)}
OTHERS = {U8: np.dtype(np.int8), U32: F32, F32: U32}


def _take_reshaped(key: str, change: Change, take: Take, message: Any) -> tuple[Effects, Effects]:
    handle: Handle = getattr(message, key)
    rows, columns, other = change
    shape, content = (handle.rows + rows, handle.columns + columns), handle.content
    dtype = OTHERS.get(handle.dtype, handle.dtype) if other else handle.dtype
    # Content that is yet to be computed has no rows to resize: its shape alone is altered.
    if content is not None and not isinstance(content, Node):
        content = np.resize(np.asarray(content), shape).view(dtype)
    effects = take(replace(message, **{key: Handle(*shape, dtype, content)}))
    return effects, effects


def _text(played: WatchedRun) -> str:
    return "".join(row_lines(played.trace))


def _content(played: WatchedRun) -> list[bytes]:
    parts = [part.content for _, _, message in played.sent for _, part in handles(message)]
    computed = [part for part in parts if isinstance(part, list | np.ndarray)]
    return [np.asarray(row).tobytes() for part in computed for row in part]


def _kernels(subject: Subject) -> Collection[object]:
    """Return the kernels that a round without losses runs; all that galois knows where one has no twin."""
    small = subject.small()
    try:
        return next(seen.kernels for _, seen in small.every_case(0))
    except NoSymbolicKernel:
        return CODES


def _parts_of_messages(subject: Subject) -> list[tuple[str, str]]:
    """Return (kind, field) of every array that the protocol's messages hold, but for the model."""
    sent = (m for _, _, m in subject.run(NOBODY_LOST).sent if m.kind != "model")
    return list(dict.fromkeys((m.kind, name) for m in sent for name, _ in handles(m)))


def _altered(
    subject: Subject, kind: str, what: str, alter: Callable[[Take, Any], tuple[Effects, Effects]]
) -> Generator[str, None, Effects | None]:
    """Run with the first message of a kind taken by `alter`, which returns the effects to be carried out and
    those to be judged; return the latter, None if there is no such message."""
    answers: list[Effects] = []

    def call(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        if answers or name != "receive" or arguments[1].kind != kind:
            return own(*arguments)
        effects, answer = alter(partial(own, arguments[0]), arguments[1])
        answers.append(answer)
        return effects

    try:
        if False in subject.run(NOBODY_LOST, call).exact:
            yield f"{what} makes the aggregate wrong"
    except Exception as error:
        yield f"{what}: a machine failed: {type(error).__name__}: {error}"
    return answers[0] if answers else None
