"""Flamingo (Ma 2023, S&P; ePrint 2023/486): pairwise masks whose seeds decryptors open for lost users.

In the rounds of `decryptors`:

    Setup. Each client i has a long-term key pair (a_i, g^a_i). Decryptors D are chosen from a public seed v.
           They generate the key (sk, PK) of a threshold ElGamal encryption: decryptor u deals a secret among
           D, and keeps the sum of the shares that it is dealt, [sk]_u.
    1. report          Client i finds its neighbours A_t(i) from v, and derives h_{i,j,t} from g^{a_i a_j} and
                       t. It draws m_{i,t} and sends
                       Vec_i = x_i + PRG(m_i) + sum_{j > i} PRG(h_ij) - sum_{j < i} PRG(h_ij),
                       a share of m_i for each decryptor, sealed, and AsymEnc(PK, h_ij) for each neighbour.
    2. cross-check     Decryptors are sent the clients that are online, and sign the set.
    3. reconstruction  With enough signatures, decryptor u opens its share of m_i of each online client i, and
                       decrypts with [sk]_u each h_ij of an online i and an offline j. U answers give m_i and
                       h_ij, whose masks the server subtracts.

Not as in the paper: the users of a round are the scenario's selection and are named in a message; a
neighbour's key is sent in each round; h_ij is derived by a key agreement in each round, not by a PRF from a
seed that both keep. U decryptors must sign, not two thirds. The curve is Ed25519, not P-256. The key is made
without proofs against dealers that cheat, and reports are not signed (see `decryptors`).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from simfl.crypto.keys import KEY_BYTES, TAG_BYTES
from simfl.crypto.shamir import SHARE_BYTES, Inconsistent
from simfl.dataplane.handles import Handle
from simfl.dataplane.ops import Ops
from simfl.errors import BadInput, need
from simfl.protocols.channels import agreed
from simfl.protocols.decryptor_server import Decrypted, DecryptorServer
from simfl.protocols.decryptors import DecryptorClient, Opened
from simfl.protocols.index_views import Lookup, Users, UsersExcept
from simfl.protocols.machine import Entropy, Params, point
from simfl.protocols.protocol import Problems


class FlamingoClient(DecryptorClient):
    """A client of Flamingo."""

    row_bytes, share_bytes = SHARE_BYTES, 32

    def deal_rows(self, members: Users) -> tuple[Handle, Handle]:
        ops, secret = self.ops, self.ops.secret(self.entropy("part of the key"))
        coefficients = ops.secret(self.entropy("share coefficients of the key"))
        return ops.point(secret), ops.deal(secret, coefficients, Lookup(point, members), self.params.U)

    def add_deals(self, rows: Handle) -> Handle:
        return self.ops.add_shares(rows)

    def protect(self, x: Handle) -> tuple[Handle, Handle, Handle]:
        ops, p = self.ops, self.params
        info = b"simfl flamingo mask %d " % p.round + p.session
        seeds = agreed(ops, self.memory["secret"], self.neighbours, self.publics, info)
        m = ops.secret(self.entropy("private seed"))
        signs = [1, *(-1 if j < self.user else 1 for j in self.neighbours)]
        masked = ops.mask(x, ops.join([m, seeds]), signs)
        rows = ops.share(m, ops.secret(self.entropy("share coefficients")), Lookup(point, self.members), p.U)
        return masked, rows, ops.encrypt(self.key, seeds, ops.secret(self.entropy("encryption")))


class FlamingoServer(DecryptorServer):
    """The server of Flamingo."""

    row_bytes, share_bytes = SHARE_BYTES, 32

    def unmask(self, got: dict[int, Opened], pairs: Sequence[tuple[int, int]]) -> Handle | str:
        ops, points = self.ops, [point(member) for member in got]
        answers, users = np.arange(len(got)), self.survivors
        # A decryptor's own row is its last: behind its place, the others' rows are one lower.
        held = [(answers, np.array([self._row(user, member) for member in got])) for user in users]
        try:
            seeds = ops.reconstruct([m.rows for m in got.values()], held, points)
        except Inconsistent as error:
            return f"recovery: the shares of user {users[error.secret]} do not belong to one secret"
        signs = [-1] * len(users)
        if pairs:
            parts = [m.parts for m in got.values() if m.parts is not None]
            seeds = ops.join([seeds, ops.combine(self.hidden, parts, points)])
            # Survivor j added the mask with i > j, and subtracted that with i < j: this takes it back.
            signs += [-1 if i > j else 1 for j, i in pairs]
        assert self.sum is not None
        return ops.mask(self.sum, seeds, signs)

    def _row(self, user: int, member: int) -> int:
        if user == member:
            return len(self.survivors) - 1
        return UsersExcept(self.survivors, member).row(user)


class Flamingo(Decrypted):
    """Pairwise masks over a random graph, opened for lost users by decryptors of one setup (Ma 2023)."""

    machines = (FlamingoClient, FlamingoServer)

    protocol: Literal["flamingo"] = "flamingo"

    def shares_bytes(self, p: Params, users: int) -> int:
        params = self.params(p)
        # Of each user: a sealed row for each decryptor, and a ciphertext for each neighbour, in three copies.
        return 3 * p.N * (params.m * (SHARE_BYTES + TAG_BYTES + KEY_BYTES) + p.N * 2 * KEY_BYTES)

    def problems(self, p: Params) -> Problems:
        yield from super().problems(p)
        try:
            need("flamingo", "nacl.bindings", "curve")
        except BadInput as missing:
            yield "", str(missing)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> FlamingoServer:
        return FlamingoServer(users, self.rounds_of_a_setup, p, ops, entropy)
