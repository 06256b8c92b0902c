"""What a scenario's parts ask of each other, which no single block can say.

The law: every check speaks of the scenario alone. What needs the data, the model or a file on disk is
checked where those are made, in `build`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from simfl.crypto import quantize
from simfl.crypto.field import is_prime
from simfl.population.dropout import NoLosses
from simfl.protocols.protocol import Protocol
from simfl.scenario import footprint, schema
from simfl.scenario.params import common, params
from simfl.scenario.schema import Scenario
from simfl.selection.schemes import All

Found = Iterator[tuple[str, str]]


def check(scenario: Scenario) -> list[tuple[str, str]]:
    """All problems of a scenario that is valid block by block, as (dotted path, message)."""
    kinds: dict[str, Protocol] = dict(scenario.protocols)
    mixed = list(_one_mode(kinds))
    found = [
        *mixed,
        *_clock(scenario),
        *_recording(scenario),
        *_deadlines(scenario, kinds),
        *_field(scenario),
    ]
    if not mixed:
        found += _buffered(scenario, kinds) if scenario.asynchronous else _in_rounds(scenario)
        found += _selections(scenario)
    found += _population(scenario)
    masked = [name for name, kind in kinds.items() if kind.offline]
    found += [*_needed(scenario, masked), *_privacy(scenario, masked)]
    found += footprint.check(scenario, every=True)  # `--protocols` may choose those that fit
    return list(dict.fromkeys(found))


def _one_mode(kinds: dict[str, Protocol]) -> Found:
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


def _deadlines(s: Scenario, kinds: dict[str, Protocol]) -> Found:
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


def _buffered(s: Scenario, kinds: dict[str, Protocol]) -> Found:
    name = next(name for name, kind in kinds.items() if kind.asynchronous)
    yield from _no_quorum(s)
    if s.buffer is None:
        yield "buffer", f"missing; protocol {name} is asynchronous"
    elif s.population.users < s.buffer.K:
        yield "buffer.K", f"K={s.buffer.K} must not be above the number of users, {s.population.users}"
    if s.buffer and s.buffer.return_s is None and not isinstance(s.dropout, NoLosses):
        yield "buffer.return_s", f"missing; dropout {s.dropout.kind} needs to know when lost users return"
    if s.buffer is not None and s.quantization is not None:
        for name, spec in s.protocols.items():
            yield from _overflow(s, name, spec)


def _overflow(s: Scenario, name: str, spec: Protocol) -> Found:
    """The weights of a sum x clip c_l < (q - 1)/2, or else a sum could wrap around (eq. 36); where it may,
    below what the audit's 64-bit integers hold."""
    p, to = params(s, spec, 1), s.quantization
    weights = spec.sum_weight(p, None)
    if weights is None or to is None:
        return
    wrap = to.on_overflow == "wrap"
    bound = quantize.audit_bound(weights) if wrap else quantize.overflow_bound(p.q)
    largest = weights * math.ceil(to.clip * to.levels)
    if largest < bound:
        return
    levels = math.floor((bound - 1) // weights / to.clip)
    remedy = f"at most {levels} levels, a smaller clip" if levels else "a smaller clip"
    limit = f"{bound}, for the audit's 64-bit sums" if wrap else f"(q - 1)/2 = {bound}"
    weighing = f"K={p.K} updates x c_g={p.c_g}" if weights == p.K * p.c_g else f"weights {weights}"
    yield (
        "quantization.levels",
        f"a sum of {weighing} x clip {to.clip:g} x {to.levels} levels (protocol {name}) can reach {largest}, "
        f"which must be below {limit}: use {remedy}" + ("" if wrap else ", or on_overflow: wrap"),
    )


# --- who takes part, and who is lost ------------------------------------------------------------
def _selections(s: Scenario) -> Found:
    yield from _selection(s)
    for name, entry in s.protocols.items():
        if entry.selection is not None:
            for path, message in _selection(s.of(name)):
                yield f"protocols.{name}.{path}", message


def _selection(s: Scenario) -> Found:
    selection, users = s.selection, s.population.users
    if s.asynchronous and not isinstance(selection, All):
        yield (
            "selection",
            f"{selection.kind} is for rounds; in an asynchronous run it must be all (buffer.concurrency "
            "limits who is in flight)",
        )
    for key, message in selection.problems(users):
        yield _at("selection", key), message


def _population(s: Scenario) -> Found:
    for key, message in s.population.availability.problems(s.asynchronous):
        yield _at("population.availability", key), message
    for key, message in s.dropout.problems(s.population.users, s.asynchronous):
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
        if s.buffer is not None or not s.protocols[name].asynchronous:
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
    spec = s.protocols[name]
    for key, message in spec.problems(common(s)):
        own = not key or key.partition(".")[0] in type(spec).model_fields
        path = f"protocols.{name}.{key}".rstrip(".") if own else key
        yield path, message.replace("{name}", name)
