"""The checks of `simfl verify` on what is learned, by rounds on symbols: of a protocol's behaviour alone."""

from __future__ import annotations

from itertools import islice

from simfl.dataplane.symbolic import SymbolicOps
from simfl.privacy.leaks.evaluated import differences
from simfl.privacy.leaks.laws import learned
from simfl.privacy.leaks.statements import stated_weights
from simfl.privacy.leaks.statements import statements as stated
from simfl.studies.proof.cases import Small, SmallBuffer
from simfl.studies.proof.sessions import two_sessions
from simfl.studies.proof.swaps import swaps
from simfl.studies.subject import PROMISES_NOTHING, Findings, NotTried, Subject

MANY = 2
"""Colluders of a second cohort, where settings allow them: what one share hides two may not."""
MOST_DIFFERENCES = 3


def secrets(subject: Subject) -> Findings:
    """The server and the colluders it withstands learn sums alone, in two rounds too (`privacy proof`)."""
    colluders, small = subject.colluders, subject.small()
    cases = small.every_case(0) if isinstance(small, SmallBuffer) else small.two_rounds("told")
    for case, seen in cases:
        yield from (f"{law} ({case})" for law in learned(seen, colluders))
    for changes in subject.with_colluders(MANY)[1:]:
        other = subject.small(**changes)
        for case, seen in other.every_case(0):
            found = learned(seen, other.cohort.withstands or 0)
            yield from (f"{law} (T={MANY}, {case})" for law in found)


def kernels(subject: Subject) -> Findings:
    """Its messages and totals are, to the bit, those of the symbols that proofs reckon with."""
    for changes in subject.with_colluders(MANY):
        pair = subject.rounds(**changes).setup, subject.rounds(**changes).setup
        words = "".join(f" (T={T})" for T in changes.values())
        yield from (f"{law}{words}" for law in islice(differences(pair), MOST_DIFFERENCES))


def sessions(subject: Subject) -> Findings:
    """Two sessions in which users have the same keys say sums alone."""
    small, colluders = _private(subject)
    seen = two_sessions(small)
    if seen is None:
        raise NotTried("its users agree on no keys")
    yield from learned(seen, colluders)


def channels(subject: Subject) -> Findings:
    """A sealed row opens for its receiver alone, as its sender's, and in its own session."""
    report = swaps(subject.small())
    if not report.tried:
        raise NotTried("its users seal nothing for each other")
    yield from report.opened.values()


def statements(subject: Subject) -> Findings:
    """A server that states another number, too few users or a second set learns one sum at most."""
    _, colluders = _private(subject)
    report = stated(subject.rounds().setup, colluders)
    if not report.tried:
        raise NotTried("its server states neither numbers nor users")
    yield from report.worked


def numbers(subject: Subject) -> Findings:
    """No number that a user states in the clear depends on its update or on its weight."""
    subject.colluders  # noqa: B018 - where nothing is promised, a weight may be stated
    setup = subject.rounds().setup
    yield from sorted(set(stated_weights(setup)))


def _private(subject: Subject) -> tuple[Small | SmallBuffer, int]:
    """Return a protocol's cohort and the colluders whom it withstands, none where it masks and promises
    nothing for certain. NotTried where a session in which all is as it should be leaks: what else a server
    does is then no matter."""
    small = subject.small()
    colluders = 0 if subject.hopes else subject.colluders
    ops = SymbolicOps(small.cohort.scenario.params(small.cohort.protocol, 1).q)
    if any(learned(small.session(ops), colluders)):
        raise NotTried(PROMISES_NOTHING if subject.hopes else "a session without losses leaks (secrets)")
    return small, colluders


PRIVACY = (secrets, kernels, sessions, channels, statements, numbers)
