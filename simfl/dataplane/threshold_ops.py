"""The operations of threshold ElGamal (`simfl.crypto.threshold_elgamal`), a part of `Ops`.

No kind of work is added for the group: a multiple of the base point counts as a public key, and one of
another point, which PyNaCl checks to be in the group, as a signature verified. On one core these two took
0.6 and 3.0 times an X25519 agreement; a verification takes 2.54 in the papers' profiles.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from simfl.crypto import threshold_elgamal as elgamal
from simfl.dataplane.handles import U8, Handle, Kernel, Shape
from simfl.dataplane.work import Ledger


class ThresholdOps(Ledger):
    """The operations of threshold ElGamal; shares, points and halves of ciphertexts have 32 bytes."""

    @abstractmethod
    def _op(self, kernel: Kernel, shape: Shape, work: dict[str, int], *args: Any) -> Handle: ...

    def point(self, secret: Handle) -> Handle:
        """Return the point of a secret, 1 x 32."""
        return self._op(elgamal.point, (1, 32, U8), {"x25519": 1}, secret)

    def deal(self, secret: Handle, seed: Handle, points: Sequence[int], t: int) -> Handle:
        """Return a share of a secret for each point, any t of which give it, n x 32."""
        # A limb of 30 bits is a ninth of a share, as of Shamir's shares of 32 bytes.
        work = {"sharing": 1, "shamir_mac": 9 * len(points) * t}
        return self._op(elgamal.deal, (len(points), 32, U8), work, secret, seed, points, t)

    def add_shares(self, shares: Handle) -> Handle:
        """Return the sum of shares, 1 x 32."""
        return self._op(elgamal.add_shares, (1, 32, U8), {"row": shares.rows}, shares)

    def add_points(self, points: Handle) -> Handle:
        """Return the sum of points, 1 x 32."""
        return self._op(elgamal.add_points, (1, 32, U8), {"x25519": points.rows}, points)

    def encrypt(self, key: Handle, items: Handle, seed: Handle) -> Handle:
        """Return a ciphertext of each row of 32 bytes under a public key, n x 64."""
        n = items.rows
        return self._op(elgamal.encrypt, (n, 64, U8), {"x25519": n, "verify": n}, key, items, seed)

    def decrypt_share(self, share: Handle, points: Handle) -> Handle:
        """Return a member's part of the decryption of ciphertexts, by their first halves, n x 32."""
        n = points.rows
        return self._op(elgamal.decrypt_share, (n, 32, U8), {"verify": n}, share, points)

    def combine(self, hidden: Handle, parts: Sequence[Handle], points: Sequence[int]) -> Handle:
        """Return the plaintexts that members decrypt together, from second halves of ciphertexts, n x 32."""
        n = hidden.rows
        work = {"verify": n * len(parts), "x25519": n * len(parts)}
        return self._op(elgamal.combine, (n, 32, U8), work, hidden, list(parts), tuple(points))
