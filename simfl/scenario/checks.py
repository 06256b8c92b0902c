"""What a scenario's parts ask of each other, which no single block can say.

The law: every check speaks of the scenario alone. What needs the data, the model or a file on disk is
checked where those are made, in `build`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from simfl.crypto import quantize
from simfl.crypto.field import is_prime
from simfl.errors import counted
from simfl.population.dropout import NoLosses
from simfl.protocols.registry import PROTOCOLS, Kind
from simfl.scenario import footprint, schema
from simfl.scenario.schema import Scenario
from simfl.selection.schemes import All

Found = Iterator[tuple[str, str]]


def check(scenario: Scenario) -> list[tuple[str, str]]:
    """All problems of a scenario that is valid block by block, as (dotted path, message)."""
    kinds = {name: PROTOCOLS[spec.protocol] for name, spec in scenario.protocols.items()}
    asynchronous = any(kind.asynchronous for kind in kinds.values())
    mixed = list(_one_mode(kinds))
    found = [
        *mixed,
        *_clock(scenario),
        *_recording(scenario),
        *_deadlines(scenario, kinds),
        *_field(scenario),
    ]
    if not mixed:
        found += _buffered(scenario, kinds) if asynchronous else _in_rounds(scenario)
        found += _selections(scenario, asynchronous)
    found += _population(scenario, asynchronous)
    masked = [name for name, kind in kinds.items() if kind.offline]
    found += [*_needed(scenario, masked), *_privacy(scenario, masked)]
    found += footprint.check(scenario, every=True)  # `--protocols` may choose those that fit
    return list(dict.fromkeys(found))


def _one_mode(kinds: dict[str, Kind]) -> Found:
    buffered = [name for name, kind in kinds.items() if kind.asynchronous]
    in_rounds = [name for name in kinds if name not in buffered]
    if buffered and in_rounds:
        yield (
            "protocols",
            f"{', '.join(in_rounds)} synchronous, {', '.join(buffered)} asynchronous: one scenario compares "
            "protocols of one mode; split it in two",
        )


def _clock(s: Scenario) -> Found:
    if isinstance(s.clock, schema.Measured):
        if s.workers:
            yield (
                "workers",
                f"workers={s.workers} needs clock modelled or recorded: the measured clock times one step "
                "at a time",
            )
        if s.payload == "shadow":
            yield (
                "payload",
                "payload shadow needs clock modelled or recorded: it executes nothing to be measured",
            )


def _recording(s: Scenario) -> Found:
    if s.audit == "galois" and s.payload == "shadow":
        yield "audit", "galois needs payload real: a shadow codes and shares nothing"
    if s.record_updates and s.payload == "shadow":
        yield "record_updates", "needs payload real: a shadow has no updates to record"


def _deadlines(s: Scenario, kinds: dict[str, Kind]) -> Found:
    for name, kind in kinds.items():
        for timer in kind.timers:
            if getattr(s.deadlines, timer) is None:
                yield f"deadlines.{timer}", f"missing; protocol {name} waits there"


def _field(s: Scenario) -> Found:
    q, users = s.field.q, s.population.users
    if not is_prime(q):
        yield "field.q", f"q={q} must be prime"
    if q <= users:
        yield "field.q", f"q={q} must be above the number of users, {users}: each has its own point"


# --- asynchronous or not ------------------------------------------------------------------------
def _in_rounds(s: Scenario) -> Found:
    if s.buffer is not None:
        yield "buffer", "only for asynchronous protocols"


def _no_quorum(s: Scenario) -> Found:
    for name, deadline in s.deadlines.given.items():
        if isinstance(deadline, schema.Quorum):
            yield f"deadlines.{name}", "a quorum is of a round; an asynchronous run takes fixed deadlines"


def _buffered(s: Scenario, kinds: dict[str, Kind]) -> Found:
    name = next(name for name, kind in kinds.items() if kind.asynchronous)
    yield from _no_quorum(s)
    if s.buffer is None:
        yield "buffer", f"missing; protocol {name} is asynchronous"
    elif s.population.users < s.buffer.K:
        yield "buffer.K", f"K={s.buffer.K} must not be above the number of users, {s.population.users}"
    if s.buffer and s.buffer.return_s is None and not isinstance(s.dropout, NoLosses):
        yield "buffer.return_s", f"missing; dropout {s.dropout.kind} needs to know when lost users return"
    for name, spec in s.protocols.items():
        if isinstance(spec, schema.LightSecAggAsync) and s.buffer is not None:
            if s.buffer.K < 2:
                yield "buffer.K", f"K=1 must be at least 2: a sum over one update is that update ({name})"
            yield from _weights(name, spec, s.buffer)
            if s.quantization is not None:
                yield from _overflow(name, spec, s.buffer, s.quantization, s.field.q)


def _weights(name: str, spec: schema.LightSecAggAsync, buffer: schema.Buffer) -> Found:
    """c_g s(staleness_bound) >= 1, or else eq. 34 could round a weight to zero."""
    tau = buffer.staleness_bound
    try:
        weight = spec.staleness.checked(tau)
    except ValueError as error:
        yield f"protocols.{name}.staleness", str(error)
        return
    if spec.c_g * weight < 1 - 1e-9:
        least = math.ceil(1 / weight - 1e-9)
        remedy = f"use c_g={least} or above" if least < 2**31 else "use a smaller staleness_bound"
        yield (
            f"protocols.{name}.c_g",
            f"c_g={spec.c_g} x s({tau}) = {spec.c_g * weight:.3g} is below 1, so a weight could round to "
            f"zero: {remedy}, or weights that fall less",
        )


def _overflow(
    name: str, spec: schema.LightSecAggAsync, buffer: schema.Buffer, to: schema.Quantization, q: int
) -> Found:
    """K c_g clip c_l < (q - 1)/2, or else a sum could wrap around (eq. 36); where it may, below what the
    audit's 64-bit integers hold."""
    weights, wrap = buffer.K * spec.c_g, to.on_overflow == "wrap"
    bound = quantize.audit_bound(weights) if wrap else quantize.overflow_bound(q)
    largest = weights * math.ceil(to.clip * to.levels)
    if largest < bound:
        return
    levels = math.floor((bound - 1) // weights / to.clip)
    remedy = f"at most {levels} levels, a smaller clip" if levels else "a smaller clip"
    limit = f"{bound}, for the audit's 64-bit sums" if wrap else f"(q - 1)/2 = {bound}"
    yield (
        "quantization.levels",
        f"a sum of K={buffer.K} updates x c_g={spec.c_g} x clip {to.clip:g} x {to.levels} levels (protocol "
        f"{name}) can reach {largest}, which must be below {limit}: use {remedy}"
        + ("" if wrap else ", or on_overflow: wrap"),
    )


# --- who takes part, and who is lost ------------------------------------------------------------
def _selections(s: Scenario, asynchronous: bool) -> Found:
    yield from _selection(s, asynchronous)
    for name, entry in s.protocols.items():
        if entry.selection is not None:
            for path, message in _selection(s.of(name), asynchronous):
                yield f"protocols.{name}.{path}", message


def _selection(s: Scenario, asynchronous: bool) -> Found:
    selection, users = s.selection, s.population.users
    if asynchronous and not isinstance(selection, All):
        yield (
            "selection",
            f"{selection.kind} is for rounds; in an asynchronous run it must be all (buffer.concurrency "
            "limits who is in flight)",
        )
    for key, message in selection.problems(users):
        yield _at("selection", key), message


def _population(s: Scenario, asynchronous: bool) -> Found:
    for key, message in s.population.availability.problems(asynchronous):
        yield _at("population.availability", key), message
    for key, message in s.dropout.problems(s.population.users, asynchronous):
        yield _at("dropout", key), message


def _at(block: str, key: str) -> str:
    return f"{block}.{key}" if key else block


# --- privacy ------------------------------------------------------------------------------------
def _needed(s: Scenario, masked: list[str]) -> Found:
    if not masked:
        return
    for block in ("privacy", "quantization"):
        if getattr(s, block) is None:
            yield block, f"missing; protocol {masked[0]} needs it"


def _privacy(s: Scenario, masked: list[str]) -> Found:
    if s.privacy is None or not masked:
        return
    for name in masked:
        yield from _masked(s.of(name), name)


def _masked(s: Scenario, name: str) -> Found:
    assert s.privacy is not None
    N, T, D = s.cohort, s.privacy.T, s.privacy.D
    if D >= N:
        yield "privacy.D", f"D={D} must be below N={N}, the users of a round"
    if T >= N:
        yield "privacy.T", f"T={T} must be below N={N}, the users of a round"
    if D >= N or T >= N:
        return
    match s.protocols[name]:
        case schema.SecAgg() as spec:
            yield from _secagg(s, name, spec)
        case schema.SecAggPlus() as spec:
            yield from _secagg_plus(s, name, spec)
        case schema.Ccesa() as spec:
            yield from _ccesa(s, name, spec)
        case _:
            yield from _lightsecagg(s)


def _lightsecagg(s: Scenario) -> Found:
    """N - D >= U > T (LightSecAgg, Theorem 1), and U >= 2, which T = 0 leaves open."""
    assert s.privacy is not None
    N, T, D = s.cohort, s.privacy.T, s.privacy.D
    U = N - D if s.privacy.U is None else s.privacy.U
    shown = f"U = N - D = {N} - {D} = {U}" if s.privacy.U is None else f"U={U}"
    if U > N - D:
        yield "privacy.U", f"{shown} must not be above N - D = {N} - {D} = {N - D}"
    if T >= U:
        yield "privacy.T", f"T={T} must be below {shown}"
    elif U < 2:
        yield "privacy.U", f"{shown} must be at least 2: a sum over one user is that user's update"


def _secagg(s: Scenario, name: str, spec: schema.SecAgg) -> Found:
    """T < t <= N - D, t >= 2: T colluders must not reconstruct, those who are left must."""
    assert s.privacy is not None
    N, T, D = s.cohort, s.privacy.T, s.privacy.D
    t = spec.threshold(T)
    shown = f"t={t} (T + 1)" if spec.t is None and t == T + 1 else f"t={t}"
    if t <= T:
        yield f"protocols.{name}.t", f"{shown} must be above privacy.T={T}"
    elif t < 2:
        yield f"protocols.{name}.t", f"{shown} must be at least 2: a sum over one user is that user's update"
    if t > N - D:
        yield f"protocols.{name}.t", f"{shown} must not be above N - D = {N} - {D} = {N - D}"


def _secagg_plus(s: Scenario, name: str, spec: schema.SecAggPlus) -> Found:
    """2 <= t <= k + 1 <= N; a complete graph must hold T and D for certain."""
    assert s.privacy is not None
    N, T, D = s.cohort, s.privacy.T, s.privacy.D
    if spec.k is not None and not 2 <= spec.k < N:
        yield f"protocols.{name}.k", f"k={spec.k} must be at least 2 and below N={N}"
        return
    most = N if spec.k is None else spec.k + 1
    if spec.t is not None and not 2 <= spec.t <= most:
        yield f"protocols.{name}.t", f"t={spec.t} must be at least 2 and at most k + 1 = {most}"
    if spec.t is None and max(2, T + 1) > N - D:
        least = f"T + 1 = {T + 1}" if T else "2: a sum over one user is that user's update"
        left = f"D={D} leaves N - D = {counted(N - D, 'user')}"
        yield "privacy.D", f"{left}, fewer than {least} (protocol {name})"


def _ccesa(s: Scenario, name: str, spec: schema.Ccesa) -> Found:
    """p > 0, 2 <= t <= N."""
    if spec.p == 0:
        yield f"protocols.{name}.p", "p=0 must be above 0: nobody would have a neighbour"
    if spec.t is not None and not 2 <= spec.t <= s.cohort:
        yield f"protocols.{name}.t", f"t={spec.t} must be at least 2 and at most N={s.cohort}"
    if s.cohort < 3:
        yield f"protocols.{name}", f"N={s.cohort} must be at least 3 for a random graph"
