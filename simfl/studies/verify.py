"""Hold a protocol, ours or a stranger's, to everything that ours are held to.

Each check yields findings from small scenarios of the protocol, on the engine and over the loopback; none
asks a machine what is right. They cannot see whether masks hide what the paper says that they hide.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from simfl.dataplane.handles import Handle
from simfl.dataplane.nodes import Node
from simfl.engine.setup import ClosedRound
from simfl.errors import BadInput
from simfl.experiment.build import build, make_clocks
from simfl.protocols.machine import INT_BYTES, SERVER, Ignore, Message, Refuse
from simfl.protocols.protocol import KEYED, STAGES, Protocol
from simfl.results.trace import Trace, row_lines
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.studies.explore.replay import drive_here
from simfl.studies.explore.rounds import AnyCohort, explore, make_cohort

USERS = 5
FEWER = 4
"""Users of whom every pattern of losses is tried."""

Receive = Callable[[Any, int, int, Any], Any]
"""(machine, its party, sender, message) -> the effects, in the place of `machine.receive`."""


@dataclass(frozen=True)
class Watched:
    """A run of a small scenario: its trace, and whether each aggregate was exact (None: there was none)."""

    trace: Trace
    exact: list[bool | None]

    @property
    def text(self) -> str:
        """The lines of its trace."""
        return "".join(row_lines(self.trace))


@dataclass(frozen=True)
class Subject:
    """The protocol to verify: its word, or `path.py:Name`, and changes of the scenarios by dotted key."""

    protocol: str
    overrides: Mapping[str, Any]

    @cached_property
    def cohort(self) -> AnyCohort:
        """A few users, whose scenario all checks vary."""
        return make_cohort(self.protocol, USERS, overrides=self.overrides)

    @property
    def kind(self) -> Protocol:
        """The protocol as its scenario has it."""
        return self.cohort.scenario.protocols[self.cohort.protocol]

    def scenario(self, **changes: Any) -> Scenario:
        """Return the scenario of three rounds in which a user of five is lost in the second, changed."""
        lost = {"user": 1, "round": 1, "at": "upload", "when": "mid_send"}
        base = {"rounds": 3, "dropout": {"kind": "script", "losses": [lost]}}
        return load(self.cohort.scenario, {**base, **changes})

    def run(self, scenario: Scenario, receive: Receive | None = None) -> Watched:
        """Run a scenario, with `receive` in the place of the machines' own."""
        name = self.cohort.protocol
        study = build(scenario)
        session = study.session(name, make_clocks(study)(name))
        setup, exact = session.machines, list[bool | None]()

        def client(user: int, *rest: Any) -> Any:
            return _with(setup.client(user, *rest), user, receive)

        def server(*arguments: Any) -> Any:
            return _with(setup.server(*arguments), SERVER, receive)

        async def publish(closed: ClosedRound) -> None:
            audit = await session.ops.get(closed.audit) if closed.audit else None
            exact.append(None if audit is None else not audit[0][:2].any())

        session.machines = replace(setup, client=client, server=server)
        drive_here(session, publish)
        return Watched(session.trace, exact)


def _with(machine: Any, party: int, receive: Receive | None) -> Any:
    if receive is not None:
        own = machine.receive
        machine.receive = lambda sender, message: receive(own, party, sender, message)
    return machine


Findings = Iterator[str]


def contract(subject: Subject) -> Findings:
    """Its points and timers are those that scenarios know, and it has a docstring."""
    kind = subject.kind
    for point in kind.points:
        if point not in KEYED:
            yield f"points: {point} is none of {', '.join(KEYED)}"
    for timer in kind.timers:
        if timer not in STAGES:
            yield f"timers: {timer} is none of {', '.join(STAGES)}"
    if not {"training", "upload"} <= set(kind.points):
        yield "points: every protocol has training and upload"
    if not (type(kind).__doc__ or "").strip():
        yield "it has no docstring: `simfl list` has nothing to say of it"


def equal_traces(subject: Subject) -> Findings:
    """The trace is the same whether work is done in line, by a pool of threads, or only counted."""
    inline = subject.run(subject.scenario()).text
    for words, changes in (("by two threads", {"workers": 2}), ("in shadow", {"payload": "shadow"})):
        found = subject.run(subject.scenario(**changes)).text
        if found != inline:
            pairs = zip(inline.splitlines(), found.splitlines(), strict=False)
            row, (one, other) = next(((k, p) for k, p in enumerate(pairs) if p[0] != p[1]), (0, ("", "")))
            yield f"the trace {words} differs from that in line, first in row {row}: {other} and not {one}"


def exact_sums(subject: Subject) -> Findings:
    """Each aggregate is bit for bit the sum over its members, without losses and with them."""
    for words, changes in (("nobody lost", {"dropout": "none"}), ("a user lost", {})):
        exact = subject.run(subject.scenario(**changes)).exact
        for index, right in enumerate(exact):
            if right is False:
                yield f"{words}: aggregate {index} is not the sum over its members"
            if right is None and changes:
                yield f"{words}: round {index} has no aggregate"


def loss_patterns(subject: Subject) -> Findings:
    """Every pattern of losses of four users ends as the protocol's own thresholds say (`simfl explore`)."""
    cohort = make_cohort(subject.protocol, FEWER, overrides=subject.overrides)
    found = explore(cohort, unlucky=None if len(cohort.detects) == 2 else 1).violation
    if found is not None:
        yield f"{'; '.join(found.laws)} ({found})"


def replays(subject: Subject) -> Findings:
    """The same seed gives the same messages, to the bit, and the same trace."""
    runs = [_recorded(subject) for _ in range(2)]
    if runs[0][0] != runs[1][0]:
        yield "two runs of one seed have different traces"
    elif runs[0][1] != runs[1][1]:
        yield "two runs of one seed sent different content: its entropy is not the scenario's"


def fresh_masks(subject: Subject) -> Findings:
    """Uploads of one user in two rounds are neither its plain update nor under the same mask."""
    if not subject.kind.offline:
        return
    zero = {"learning.lr": 1e-9, "learning.epochs": 1, "dropout": "none"}  # updates that quantise to nothing
    uploads: dict[int, list[bytes]] = {}
    for _, sender, message in _messages(subject, subject.scenario(**zero)):
        for part in _handles(message):
            if message.point == "upload" and part.content is not None and part.columns > USERS:
                values = np.asarray(part.content).ravel()
                if np.count_nonzero(values) < values.size // 2:
                    yield f"the upload of user {sender} is its update: nothing hides it"
                    return
                uploads.setdefault(sender, []).append(values[:-1].tobytes())
    for sender, sent in uploads.items():
        if len(set(sent)) < len(sent):
            yield f"user {sender} used one mask twice: the difference of its uploads is that of its updates"
            return


def refusals(subject: Subject) -> Findings:
    """A message whose arrays have another shape is refused, whoever gets it, and the sum stays right."""
    for kind, key in _parts_of_messages(subject):
        for words, change in CHANGES.items():
            yield from _refused(subject, kind, key, words, change)


def doubles(subject: Subject) -> Findings:
    """A message that comes a second time has no effect, and the sum stays right."""
    for kind in dict.fromkeys(kind for kind, _ in _parts_of_messages(subject)):
        doubled: list[Any] = []

        def receive(own: Any, party: int, sender: int, message: Any, kind: str = kind) -> Any:
            effects = own(sender, message)
            if message.kind == kind and not doubled:  # noqa: B023
                again = own(sender, message)
                doubled.append(again)  # noqa: B023
                if not all(isinstance(effect, Ignore | Refuse) for effect in again):
                    doubled.append("taken")  # noqa: B023
            return effects

        found = yield from _run(subject, f"{kind} twice", receive)
        if "taken" in doubled:
            yield f"a second {kind} is taken like the first: it must have no effect but Ignore or Refuse"
        if found is not None and False in found.exact:
            yield f"a second {kind} makes the aggregate wrong"


def sizes(subject: Subject) -> Findings:
    """The bytes of each message are those of what it holds: arrays, and 4 for each public number."""
    seen: dict[str, tuple[int, int]] = {}
    for _, _, message in _messages(subject, subject.scenario()):
        held = _size_of(message)
        if message.size_bytes < held[0]:
            seen.setdefault(message.kind, (message.size_bytes, held[0]))
    for kind, (stated, held_bytes) in seen.items():
        yield f"{kind} states {stated} bytes and holds {held_bytes} bytes of arrays"


CHECKS: dict[str, Callable[[Subject], Findings]] = {
    check.__name__: check
    for check in (
        contract, exact_sums, equal_traces, replays, sizes, fresh_masks, refusals, doubles, loss_patterns,
    )
}  # fmt: skip
"""By name; a check's docstring says what the protocol is held to."""


def verify(
    subject: Subject, checks: Mapping[str, Callable[[Subject], Findings]] = CHECKS
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (check, what it holds the protocol to, findings) one after the other.

    Raises:
        BadInput: there is no such protocol, or its scenarios are refused.
    """
    _ = subject.cohort
    for name, check in checks.items():
        try:
            found = list(check(subject))
        except BadInput:
            raise
        except Exception as error:  # a machine that fails is what is looked for
            found = [f"a machine failed: {type(error).__name__}: {error}"]
        yield name, (check.__doc__ or "").strip(), found


# --- what the checks are made of ----------------------------------------------------------------
Change = Callable[[Handle], Handle]
CHANGES: dict[str, Change] = {
    "a row more": lambda h: Handle(h.rows + 1, h.columns, h.itemsize, _resized(h, 1, 0)),
    "a column less": lambda h: Handle(h.rows, h.columns - 1, h.itemsize, _resized(h, 0, -1)),
}


def _resized(handle: Handle, rows: int, columns: int) -> Any:
    if handle.content is None or isinstance(handle.content, Node):
        return handle.content
    content = np.asarray(handle.content)
    return np.resize(content, (handle.rows + rows, handle.columns + columns))


def _messages(subject: Subject, scenario: Scenario) -> list[tuple[int, int, Any]]:
    """Return (receiver, sender, message) of all messages of a run that arrived."""
    seen: list[tuple[int, int, Any]] = []

    def receive(own: Any, party: int, sender: int, message: Any) -> Any:
        seen.append((party, sender, message))
        return own(sender, message)

    subject.run(scenario, receive)
    return seen


def _recorded(subject: Subject) -> tuple[str, list[bytes]]:
    """Return a run's trace, and the content of all that was sent."""
    seen: list[bytes] = []

    def receive(own: Any, party: int, sender: int, message: Any) -> Any:
        seen.extend(_bytes(part) for part in _handles(message))
        return own(sender, message)

    return subject.run(subject.scenario(), receive).text, seen


def _bytes(handle: Handle) -> bytes:
    content = handle.content
    if content is None or not isinstance(content, list | np.ndarray):
        return b""
    return b"".join(np.asarray(row).tobytes() for row in content)


def _handles(message: Message) -> Iterator[Handle]:
    for name in _names(message):
        if isinstance(value := getattr(message, name), Handle):
            yield value


def _names(message: Any) -> list[str]:
    return [field.name for field in fields(message)]


def _parts_of_messages(subject: Subject) -> list[tuple[str, str]]:
    """Return (kind, field) of every array that the protocol's messages hold."""
    found: dict[tuple[str, str], None] = {}
    for _, _, message in _messages(subject, subject.scenario(dropout="none")):
        for name in _names(message):
            if isinstance(getattr(message, name), Handle) and message.kind != "model":
                found[message.kind, name] = None
    return list(found)


def _refused(subject: Subject, kind: str, key: str, words: str, change: Change) -> Findings:
    altered: list[Any] = []

    def receive(own: Any, party: int, sender: int, message: Any) -> Any:
        if message.kind != kind or altered:
            return own(sender, message)
        effects = own(sender, replace(message, **{key: change(getattr(message, key))}))
        altered.append(any(isinstance(effect, Refuse) for effect in effects))
        return effects

    what = f"{kind} with {words} in {key}"
    found = yield from _run(subject, what, receive)
    if altered == [False]:
        yield f"{what} is not refused"
    if found is not None and False in found.exact:
        yield f"{what} makes the aggregate wrong"


def _run(subject: Subject, what: str, receive: Receive) -> Generator[str, None, Watched | None]:
    """Run with `receive`; yields that a machine failed, and returns the run if none did."""
    try:
        return subject.run(subject.scenario(dropout="none"), receive)
    except Exception as error:
        yield f"{what}: a machine failed: {type(error).__name__}: {error}"
        return None


def _size_of(message: Any) -> tuple[int, int]:
    """Return the bytes of a message's arrays, and of those with its public numbers."""
    arrays = sum(part.size_bytes for part in _handles(message))
    numbers = 0
    for name in _names(message):
        value = getattr(message, name)
        numbers += 1 if isinstance(value, int) else len(value) if isinstance(value, tuple) else 0
    return arrays, arrays + INT_BYTES * numbers
