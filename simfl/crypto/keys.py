"""Key agreement and authenticated encryption between users: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869),
AES-256-GCM (NIST SP 800-38D), through pyca/cryptography.

Invariant: a row that does not authenticate yields no value
(`test_any_flipped_bit_is_forged_and_names_its_row`). An error that a peer can cause is `Forged` and names the
row; one that only the caller can cause is ValueError. A nonce must never be used twice with one key: `nonce`
makes nonces from a sender and its counter.
"""

import hmac
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import AEADDecryptionContext, Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import DTypeLike

from simfl.crypto import A8
from simfl.crypto.row_routing import LONG_BYTES, Rows

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
_NONCE = struct.Struct(">IQ")

ONE_KEY = "has one public key with another user"
"""Reason of a `Forged` row with the key and nonce of an earlier row."""

Octets = Collection[bytes]
SealKey = tuple[bytes, bytes, bytes]
"""Key, nonce and associated data of one row."""


class Forged(Exception):
    """A row of the peers' input differs from an honest peer's.

    Args:
        row: Index of the row.
        why: Reason.
    """

    def __init__(self, row: int, why: str) -> None:
        # Both arguments, so that the error can be pickled (`test_forged_survives_a_process_boundary`).
        super().__init__(row, why)
        self.row, self.why = row, why

    def __str__(self) -> str:
        return f"row {self.row}: {self.why}"


def public(secret: A8) -> A8:
    """Return the X25519 public key, [1, 32], of a secret key [1, 32] (any 32 bytes)."""
    raw = _private(secret).public_key().public_bytes_raw()
    return np.frombuffer(raw, np.uint8).reshape(1, -1).copy()


def agree(secret: A8, publics: A8, info: bytes) -> A8:
    """Return hkdf(X25519(secret, publics[i]), info) for each i, [n, 32].

    Args:
        secret: Secret key [1, 32].
        publics: Public keys [n, 32].
        info: Purpose of the keys.

    Raises:
        Forged: publics[i] is a "low-order public key": the shared secret is all zero (RFC 7748, section 6.1).
    """
    _check("publics", publics, len(publics), KEY_BYTES)
    private, out = _private(secret), bytearray()
    for i, public_bytes in enumerate(_strings(publics)):
        peer = X25519PublicKey.from_public_bytes(public_bytes)
        try:
            shared = private.exchange(peer)
        except ValueError:
            # The library raises it for the all-zero shared secret only.
            raise Forged(i, "low-order public key") from None
        # Never the shared secret itself: `info` separates channels from masks, and one run from another.
        out += hkdf(shared, info)
    return np.frombuffer(out, np.uint8).reshape(-1, KEY_BYTES)


def low_order(publics: A8) -> int | None:
    """Return the first row of publics [n, 32] that gives the all-zero secret with any key; None if no row
    does."""
    try:
        # Any secret key finds them: X25519 clamps these zeros to a valid one.
        agree(np.zeros((1, KEY_BYTES), np.uint8), publics, b"")
    except Forged as fault:
        return fault.row
    return None


def hkdf(secret: bytes, info: bytes) -> bytes:
    """Return 32 bytes of input keying material by HKDF-SHA256 (RFC 5869) without salt."""
    # 32 bytes are one block, so one HMAC: hashlib needs half the time of cryptography's HKDF for it.
    return hmac.digest(hmac.digest(bytes(KEY_BYTES), secret, "sha256"), info + b"\x01", "sha256")


def seal(keys: A8, items: Rows, nonces: Octets, aads: Octets) -> Rows:
    """Return AES-256-GCM of each row under its key, uint8 [n, L itemsize + 16], the tag last.

    Args:
        keys: Keys [n, 32].
        items: Rows [n, L], whose elements are encrypted as little-endian bytes.
        nonces: n nonces of 12 bytes.
        aads: n strings that are authenticated with the rows but not sent.

    Raises:
        Forged: Row i has the key and nonce of an earlier row: two peers have one public key.
        ValueError: There is not one key, nonce and string for each row.
    """
    n = len(items)
    if isinstance(items, np.ndarray) and n == 0:
        return np.empty((0, items.shape[1] * items.itemsize + TAG_BYTES), np.uint8)
    # A server that sends one public key for two users makes their channel keys equal, and the sender's nonce
    # is one for all receivers. Two rows under one key and nonce reveal their difference (test_channels.py:
    # test_one_key_of_two_users_seals_nothing).
    if (row := reused(_strings(keys), nonces)) is not None:
        raise Forged(row, ONE_KEY)
    under = zip(*_ciphers(keys, nonces, aads, n), _strings(items), strict=True)
    return _together([aead.encrypt(once, item, aad) for aead, once, aad, item in under], np.dtype(np.uint8))


def reused(keys: Sequence[Any], nonces: Octets) -> int | None:
    """Return the first row that has the key and the nonce of a row before it; None if no row has."""
    # Keys of honest peers all differ, so the pairs are compared in rare cases only.
    if len(set(keys)) == len(keys):
        return None
    # Not strict: `_ciphers` refuses lists of different lengths.
    pairs = list(zip(keys, nonces, strict=False))
    return next((k for k, pair in enumerate(pairs) if pair in pairs[:k]), None)


def open_(keys: A8, sealed: Rows, nonces: Octets, aads: Octets, dtype: DTypeLike) -> Rows:
    """Return the rows that `seal` sealed, [n, (S - 16) / itemsize].

    Args:
        keys: Keys [n, 32].
        sealed: Sealed rows, uint8 [n, S].
        nonces: n nonces of 12 bytes.
        aads: n strings that were authenticated with the rows.
        dtype: "uint8" or "uint32".

    Raises:
        Forged: Row i, the first whose key, nonce, string or content differs, "does not authenticate"; no row
            is returned.
        ValueError: There is not one key, nonce and string for each row, or S - 16 is no multiple of the item
            size.
    """
    n, kind = len(sealed), np.dtype(dtype)
    if kind not in (np.uint8, np.uint32):
        raise ValueError(f"dtype={dtype!r} must be 'uint8' or 'uint32'")
    if n == 0:
        return np.empty((0, (np.asarray(sealed).shape[1] - TAG_BYTES) // kind.itemsize), dtype)
    size = sealed[0].nbytes
    if sealed[0].dtype != np.uint8 or size < TAG_BYTES or (size - TAG_BYTES) % kind.itemsize:
        raise ValueError(f"rows of {size} bytes are not a tag of {TAG_BYTES} and whole {dtype} elements")
    # All rows are opened before one is returned, so a forged row leaves no value of any.
    opened: list[bytes] = []
    try:
        for aead, once, aad, row in zip(*_ciphers(keys, nonces, aads, n), _strings(sealed), strict=True):
            opened.append(aead.decrypt(once, row, aad))
    except InvalidTag:
        raise Forged(len(opened), "does not authenticate") from None
    return _together(opened, kind)


def _ciphers(keys: A8, nonces: Octets, aads: Octets, n: int) -> tuple[Iterable[AESGCM], Octets, Octets]:
    _check("keys", keys, n, KEY_BYTES)
    if len(nonces) != n or len(aads) != n:
        raise ValueError(f"{len(nonces)} nonces and {len(aads)} aads for {n} rows")
    listed = list(nonces)
    # The library takes other lengths too, which GCM hashes to a first block: two of them could collide.
    if set(map(len, listed)) != {NONCE_BYTES}:
        raise ValueError(f"nonces must have {NONCE_BYTES} bytes")
    return map(AESGCM, _strings(keys)), listed, aads


def _strings(rows: Rows) -> list[Any]:
    """Return each row's little-endian bytes."""
    # Short rows are many. One copy of all of them, and slices of it, cost a fraction of an array for each
    # row; and the library reads bytes in less time than any other buffer.
    if isinstance(rows, list):
        return [np.ascontiguousarray(row, row.dtype.newbyteorder("<")).view(np.uint8).data for row in rows]
    width = rows.shape[1] * rows.itemsize
    content = rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()
    return [content[k * width : (k + 1) * width] for k in range(len(rows))]


def _together(strings: list[bytes], kind: np.dtype[Any]) -> Rows:
    """Return rows of a type from their little-endian bytes."""
    stored = kind.newbyteorder("<")
    # Rows of this size are separate arrays, which are freed one by one (row_routing.py).
    if len(strings[0]) >= LONG_BYTES:
        return [np.frombuffer(content, stored).astype(kind, copy=False) for content in strings]
    rows = np.frombuffer(bytearray().join(strings), stored).astype(kind, copy=False)
    return rows.reshape(len(strings), -1)


class SealedPipe:
    """One row, sealed and opened block by block, with the result of `seal` and `open_`.

    Args:
        sealing: Key, nonce and associated data of the sender.
        opening: Those of the receiver; None if it does not open the row.
    """

    def __init__(self, sealing: SealKey, opening: SealKey | None) -> None:
        key, once, aad = sealing
        self._sealing = Cipher(algorithms.AES(key), modes.GCM(once)).encryptor()
        self._sealing.authenticate_additional_data(aad)
        self._opening: AEADDecryptionContext | None = None
        if opening is not None:
            key, once, aad = opening
            self._opening = Cipher(algorithms.AES(key), modes.GCM(once)).decryptor()
            self._opening.authenticate_additional_data(aad)

    def carry(self, block: A8) -> A8:
        """Return the block as the receiver reads it; it is not authenticated before `close`."""
        # A wrong block is noticed by `close` only, when the receiver has summed it. That error ends the run,
        # so no result has it (streamed_shares.py).
        sealed = self._sealing.update(block.data)
        return block if self._opening is None else np.frombuffer(self._opening.update(sealed), np.uint8)

    def close(self) -> None:
        """Compare the tag of the whole row.

        Raises:
            Forged: The receiver's key, nonce, associated data or bytes differ from the sender's.
        """
        self._sealing.finalize()
        if self._opening is not None:
            try:
                self._opening.finalize_with_tag(self._sealing.tag)
            except InvalidTag:
                raise Forged(0, "does not authenticate") from None


def nonce(sender: int, counter: int) -> bytes:
    """Return 12 bytes: sender (4, big-endian), then counter (8, big-endian).

    Raises:
        ValueError: The sender is not in 0 .. 2^32 - 1, or the counter not in 0 .. 2^64 - 1.

    >>> nonce(1, 2).hex()
    '000000010000000000000002'
    """
    try:
        # Packed at once: the bounds are looked at only if that fails.
        return _NONCE.pack(sender, counter)
    except struct.error:
        if not 0 <= sender < 2**32:
            raise ValueError(f"sender={sender} must be in [0, 2^32)") from None
        raise ValueError(f"counter={counter} must be in [0, 2^64)") from None


def _private(secret: A8) -> X25519PrivateKey:
    _check("secret", secret, 1, KEY_BYTES)
    return X25519PrivateKey.from_private_bytes(secret.tobytes())


def _check(name: str, array: A8, rows: int, columns: int) -> None:
    if array.dtype != np.uint8 or array.shape != (rows, columns):
        raise ValueError(f"{name} must be uint8 [{rows}, {columns}], not {array.dtype} {list(array.shape)}")
