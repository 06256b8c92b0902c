"""Machines with one fault each, planted on purpose: what the explorer must find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from simfl.protocols.buffered_server import BufferedServer
from simfl.protocols.fedbuff import FedBuffServer
from simfl.protocols.keyed_messages import MaskedUpload, Survivors
from simfl.protocols.lightsecagg import LightSecAggClient, LightSecAggServer
from simfl.protocols.lightsecagg_async import LightSecAggAsyncClient, LightSecAggAsyncServer
from simfl.protocols.machine import Discard, Discarded, GiveUp, Ignore, Send
from simfl.protocols.pairwise_masks import SecAggClient, SecAggServer
from simfl.protocols.registry import PROTOCOLS


# --- thresholds -----------------------------------------------------------------------------------
class OneShareTooFew(SecAggServer):
    """Reconstructs from t - 1 shares."""

    def unmask(self, got: Any) -> Any:
        self.t = {user: t - 1 for user, t in self.t.items()}
        return super().unmask(got)


class OneAnswerTooMany(LightSecAggServer):
    """Wants U + 1 answers where U decode."""

    def needed(self, stage: str) -> int:
        return self.params.U + (stage == "recovery")

    def enough(self) -> bool:
        return len(self.got) == len(self.expected)

    def unmask(self, got: Any) -> Any:
        return super().unmask(dict(list(got.items())[: self.params.U]))


class ServesTooFew(LightSecAggServer):
    """Goes on to training with U - 1 users."""

    def __init__(self, users: Any, params: Any, ops: Any, entropy: Any) -> None:
        super().__init__(users, params, ops, entropy)
        self.t = dict.fromkeys(self.users, params.U - 1)

    def needed(self, stage: str) -> int:
        return self.params.U - (stage == "shares")


class WaitsForAll(SecAggServer):
    """Waits for every answer where t of each secret are enough."""

    def recoverable(self) -> bool:
        return False


class CountsAnswersAlone(SecAggServer):
    """Ends a recovery with t answers, whoever they are from."""

    def recoverable(self) -> bool:
        return len(self.got) >= self.params.t


# --- signs ----------------------------------------------------------------------------------------
class AllPlus(SecAggClient):
    """Adds the masks that it should subtract, those with j < i."""

    def hold_shares(self, inbox: Any) -> Any:
        mask = self.ops.mask
        self.ops.mask = lambda x, seeds, signs: mask(x, seeds, [1] * len(signs))
        try:
            return super().hold_shares(inbox)
        finally:
            self.ops.mask = mask


class WrongWayBack(SecAggServer):
    """Takes the masks of lost users off with the sign that put them on."""

    def unmask(self, got: Any) -> Any:
        mask = self.ops.mask
        self.ops.mask = lambda x, seeds, signs: mask(
            x, seeds, [*signs[: len(self.survivors)], *(-s for s in signs[len(self.survivors) :])]
        )
        try:
            return super().unmask(got)
        finally:
            self.ops.mask = mask


# --- who survived ---------------------------------------------------------------------------------
class StaleSurvivors(LightSecAggServer):
    """Recovers the masks of all who shared, not of those who uploaded."""

    def ask_survivors(self, got: Any) -> Any:
        shared = tuple(sorted(self.answered[1]))
        return [
            Send(e.to, Survivors(shared)) if isinstance(e, Send) else e for e in super().ask_survivors(got)
        ]


class AsksForBoth(SecAggServer):
    """Tells one survivor that everybody survived, and so gets its shares of the lost users' b_i."""

    def ask_survivors(self, got: Any) -> Any:
        def told(e: Any) -> Any:
            return (
                Send(e.to, Survivors(self.peers[e.to].base))
                if isinstance(e, Send) and e.to == min(got)
                else e
            )

        return [told(e) for e in super().ask_survivors(got)]


class TwoSums(LightSecAggServer):
    """Asks all but the last survivor for the sum over a smaller set too: the difference gives a mask away."""

    def ask_survivors(self, got: Any) -> Any:
        effects = super().ask_survivors(got)
        if len(got) <= self.params.U:
            return effects
        fewer = Survivors(tuple(sorted(got))[: self.params.U])
        return [Send(e.to, fewer) if isinstance(e, Send) and e.to in fewer.users else e for e in effects]


# --- late, lost and counted -----------------------------------------------------------------------
class AddsLateUploads(LightSecAggServer):
    """Adds an upload to the sum that comes after its user was given up."""

    def receive(self, sender: int, message: Any) -> Any:
        if isinstance(message, MaskedUpload) and self.stage == "recovery" and self.sum is not None:
            self.sum = self.ops.add(self.sum, message.masked)
        return super().receive(sender, message)


class ForgetsWhoUploaded(SecAggServer):
    """Takes a user whose connection broke for lost, though its upload is in the sum."""

    def gone(self, user: int) -> Any:
        if self.stage == "upload":
            self.got.pop(user, None)
        return super().gone(user)


class WeightTwice(SecAggClient):
    """Applies its weight twice."""

    def upload(self, update: Any) -> Any:
        return super().upload(replace(update, weight=update.weight**2))


class MutePeer(LightSecAggClient):
    """Refuses an honest set of survivors that lacks anyone who shared."""

    def answer(self, survivors: Any) -> Any:
        self.t = len(self.held_share_owners)
        return super().answer(survivors)


# --- buffers --------------------------------------------------------------------------------------
class TooStale(LightSecAggAsyncServer):
    """Takes updates that are one version staler than the bound."""

    def next(self) -> Any:
        honest = self.params
        self.params = replace(honest, staleness_bound=honest.staleness_bound + 1)
        try:
            return super().next()
        finally:
            self.params = honest


class TakesWhatItGaveUp(LightSecAggAsyncServer):
    """Still waits for an update that it has given up."""

    def _give_up(self, user: int) -> Any:
        return [GiveUp((user,), "upload", self.flights[user][0])]


class DropsWhatItTook(FedBuffServer):
    """Throws an update out of its buffer when the deadline comes that had passed while the upload waited."""

    def expire(self, timer: Any) -> Any:
        effects = super().expire(timer)
        if isinstance(effects[0], Ignore):
            return [Discard(timer.subject, Discarded.STALE)]
        return effects


class CountsOldAnswers(LightSecAggAsyncServer):
    """Takes answers to an earlier recovery for answers to this one."""

    def take_answer(self, user: int, message: Any) -> Any:
        if self.request is not None:
            message = replace(message, recovery=self.request.recovery)
        return super().take_answer(user, message)


class ForgetsWeights(LightSecAggAsyncClient):
    """Sums the coded shares without the staleness weights of eq. 34."""

    def answer(self, request: Any) -> Any:
        return super().answer(replace(request, weights=(1,) * len(request.weights)))


@dataclass(frozen=True)
class Fault:
    """A faulty machine, where it goes, and how many users must be lost at least for it to show."""

    protocol: str
    machine: type[Any]
    affected_users: int
    sum_is_wrong: bool = True


FAULTS = [
    Fault("secagg", OneShareTooFew, 0),
    Fault("secagg", WaitsForAll, 1, sum_is_wrong=False),
    Fault("ccesa", WaitsForAll, 1, sum_is_wrong=False),
    Fault("secagg_plus", CountsAnswersAlone, 0),
    Fault("lightsecagg", OneAnswerTooMany, 1),
    Fault("lightsecagg", ServesTooFew, 2, sum_is_wrong=False),
    Fault("secagg", AllPlus, 0),
    Fault("secagg", WrongWayBack, 1),
    Fault("secagg_plus", WrongWayBack, 1),
    Fault("lightsecagg", StaleSurvivors, 1),
    Fault("secagg", AsksForBoth, 1, sum_is_wrong=False),
    Fault("lightsecagg", TwoSums, 0),
    Fault("lightsecagg", AddsLateUploads, 1),
    Fault("secagg", ForgetsWhoUploaded, 1),
    Fault("ccesa", WeightTwice, 0),
    Fault("lightsecagg", MutePeer, 1),
    Fault("lightsecagg_async", TooStale, 1, sum_is_wrong=False),
    Fault("lightsecagg_async", TakesWhatItGaveUp, 0, sum_is_wrong=False),
    Fault("fedbuff", DropsWhatItTook, 0, sum_is_wrong=False),
    Fault("lightsecagg_async", CountsOldAnswers, 0),
    Fault("lightsecagg_async", ForgetsWeights, 0),
]


def plant(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a faulty machine in the place of the honest one."""
    kind, machine = PROTOCOLS[fault.protocol], fault.machine

    def client(self: Any, user: int, p: Any, ops: Any, entropy: Any) -> Any:
        return machine(user, p, ops, entropy)

    def server(self: Any, users: Any, p: Any, ops: Any, entropy: Any) -> Any:
        if issubclass(machine, SecAggServer):
            return machine(self.graph(users, p, entropy), p, ops, entropy)
        return machine(users, p, ops, entropy)

    if issubclass(machine, SecAggServer | LightSecAggServer | BufferedServer):
        monkeypatch.setattr(kind, "server", server)
    else:
        monkeypatch.setattr(kind, "client", client)
