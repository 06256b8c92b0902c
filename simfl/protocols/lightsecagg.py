"""LightSecAgg (Alg. 1): each user's mask is MDS-coded among all, the sum of masks recovered in one shot.

    client   invited -> keyed -> shared -> ready -> uploaded -> answered
    server   advertise -> shares -> upload (U_1) -> recovery (any U of U_1) -> done

User i uploads x_i + z_i; user j answers with the sum of its coded shares [z~_i]_j over the survivors; any
U answers decode to the sum of the survivors' masks (eqs. 5-6). Any T coded shares say nothing of z_i.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from simfl.crypto import mds, ntt
from simfl.crypto.keys import KEY_BYTES, TAG_BYTES
from simfl.dataplane.handles import U32, Handle
from simfl.dataplane.ops import Ops, PeerFault
from simfl.protocols.consistency import Consistent, SigningClient, SigningServer
from simfl.protocols.graphs import complete
from simfl.protocols.index_views import Lookup, rows_of
from simfl.protocols.keyed_messages import Answer, Inbox, Invite, Roster, Survivors, coded_bytes
from simfl.protocols.machine import SERVER, Effects, Entropy, Ignore, Params, Send, misshapen
from simfl.protocols.masked_round import MaskedClient, MaskedServer
from simfl.protocols.protocol import KEYED, STAGES, Problems, Protocol
from simfl.trace.codes import Reason


class LightSecAggClient(MaskedClient):
    keys, dtype = 1, U32

    @property
    def share_bytes(self) -> int:
        return coded_bytes(self.params, self.params.d + 1)

    def threshold(self, roster: Roster) -> int:
        if len(roster.users) < self.params.U:
            raise PeerFault(SERVER, f"a roster of {len(roster.users)} users, below U={self.params.U}")
        return self.params.U

    def share_secrets(self, roster: Roster) -> Handle:
        """Encode the mask z_i (eq. 5)."""
        ops, p = self.ops, self.params
        self.z = ops.prg(ops.secret(self.entropy("mask")), p.d + 1)
        noise = ops.secret(self.entropy("noise"))
        return ops.encode(self.z, noise, Lookup(partial(mds.point_of, q=p.q), roster.users), p.U, p.T)

    def answer(self, survivors: Survivors) -> Effects:
        """Sum the coded shares of the survivors' masks (eq. 6)."""
        users = self.check(survivors)
        if len(self.kept) < len(self.partners):
            missing = next((u for u in users if u != self.user and u not in self.kept), None)
            if missing is not None:
                return [Ignore(SERVER, "survivors", Reason.NO_SHARE, detail=f"user {missing}")]
        rows = self.ops.pick(self.held_shares, Lookup(rows_of(self.kept, self.user), users))
        return [Send(SERVER, Answer(self.ops.total(rows)))]


class LightSecAggServer(MaskedServer):
    keys = 1

    def __init__(self, users: Iterable[int], params: Params, ops: Ops) -> None:
        circles = complete(tuple(users))
        super().__init__(circles, dict.fromkeys(circles, params.U), params, ops)

    def needed(self, stage: str) -> int:
        return self.params.U

    @property
    def share_bytes(self) -> int:
        return coded_bytes(self.params, self.params.d + 1)

    def answer_flaw(self, user: int, content: Handle, missing: tuple[int, ...]) -> str:
        if missing:  # then it has no sum to answer with
            return "malformed: a sum that misses shares"
        return misshapen(content, 1, self.share_bytes // U32.itemsize, U32)

    def recoverable(self) -> bool:
        return len(self.got) >= self.params.U  # one shot: any U answers decode

    def unmask(self, got: dict[int, Answer]) -> Effects:
        ops, p = self.ops, self.params
        assert self.sum is not None
        first = dict(islice(got.items(), p.U))
        rows = ops.join([m.content for m in first.values()])
        masks = ops.decode(rows, mds.points_of(tuple(first), p.q), p.U, p.T, p.d + 1)
        return self.unmasked(ops.sub(self.sum, masks))


U_SHARES = (1.0, 0.75, 0.5)  # of the way from T to N - D, that are tried in a plan


class Coded(Protocol):
    """Protocols whose masks are coded: N - D >= U > T (Theorem 1)."""

    def needed(self, stage: str, p: Params) -> int:
        return p.U

    def problems(self, p: Params) -> Problems:
        left = p.N - p.D
        shown = f"U = N - D = {p.N} - {p.D} = {p.U}" if not p.U_given else f"U={p.U}"
        if left < p.U:
            yield "privacy.U", f"{shown} must not be above N - D = {p.N} - {p.D} = {left}"
        if p.U <= p.T:
            yield "privacy.T", f"T={p.T} must be below {shown}"
        elif p.U < 2:
            yield "privacy.U", f"{shown} must be at least 2: a sum over one user is that user's update"

    def designs(self, p: Params, sigma: float, eta: float) -> Iterator[dict[str, Any]]:
        """Many answers make short shares, few come soon. Transforms are fast, in a field of their own."""
        answers = dict.fromkeys(p.T + math.ceil((p.N - p.D - p.T) * share) for share in U_SHARES)
        for U in answers:
            yield from ({"privacy.U": U, "field.q": q} for q in (ntt.Q, p.q) if U > p.T)

    def notes(self, p: Params) -> Iterator[str]:
        yield from super().notes(p)
        if not p.U_given:
            yield f"U = N - D = {p.N} - {p.D} = {p.U}"

    def relayed_bytes(self, p: Params) -> int:
        left = p.N - p.D
        return left * (left - 1) * coded_bytes(p, p.d + 1)

    def shares_bytes(self, p: Params, users: int) -> int:
        sealed = coded_bytes(p, p.d + 1) + TAG_BYTES
        return users**2 * (3 * sealed + 2 * KEY_BYTES)  # a share sealed, opened and once more


class SignedLightSecAggClient(SigningClient, LightSecAggClient):
    """A LightSecAgg client that signs the set of survivors."""


class SignedLightSecAggServer(SigningServer, LightSecAggServer):
    """A LightSecAgg server that passes on the survivors' signatures."""


class LightSecAgg(Consistent, Coded):
    """One-shot recovery of the aggregate mask (LightSecAgg Alg. 1)."""

    points, timers, model_with = KEYED, STAGES, (Invite, Inbox)
    streams = True
    member_bytes = 13_000

    protocol: Literal["lightsecagg"] = "lightsecagg"

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> LightSecAggClient:
        return (SignedLightSecAggClient if self.signed else LightSecAggClient)(user, p, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> LightSecAggServer:
        return (SignedLightSecAggServer if self.signed else LightSecAggServer)(users, p, ops)
