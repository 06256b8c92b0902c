"""Key agreement and authenticated encryption between users: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869),
AES-256-GCM (NIST SP 800-38D), through pyca/cryptography.

Invariant: nothing that does not authenticate yields a value. An error that a peer can cause is `Forged` and
names the row; one that only the caller can cause is ValueError. A nonce must never be used twice with one
key: `nonce` makes them from a sender and its counter.
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

Octets = Collection[bytes]
SealKey = tuple[bytes, bytes, bytes]  # key, nonce and associated data of one row


class Forged(Exception):
    """Row `row` of the peers' input is not what an honest peer sends, and `why`."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)  # both, so that it can be pickled
        self.row, self.why = row, why

    def __str__(self) -> str:
        return f"row {self.row}: {self.why}"


def public(secret: A8) -> A8:
    """Return the X25519 public key, [1, 32], of a secret key [1, 32] (any 32 bytes)."""
    raw = _private(secret).public_key().public_bytes_raw()
    return np.frombuffer(raw, np.uint8).reshape(1, -1).copy()


def agree(secret: A8, publics: A8, info: bytes) -> A8:
    """Return hkdf(X25519(secret, publics_i), info) of each i, [n, 32]; secret [1, 32], publics [n, 32].
    Forged(i, "low-order public key") if the shared secret is all zero (RFC 7748, section 6.1)."""
    _check("publics", publics, len(publics), KEY_BYTES)
    private, out = _private(secret), bytearray()
    for i, theirs in enumerate(_strings(publics)):
        peer = X25519PublicKey.from_public_bytes(theirs)
        try:
            shared = private.exchange(peer)
        except ValueError:  # raised for the all-zero shared secret, and for that alone
            raise Forged(i, "low-order public key") from None
        out += hkdf(shared, info)
    return np.frombuffer(out, np.uint8).reshape(-1, KEY_BYTES)


def low_order(publics: A8) -> int | None:
    """Return the first row of publics [n, 32] that gives the all-zero secret with any key; None without."""
    try:
        agree(np.zeros((1, KEY_BYTES), np.uint8), publics, b"")  # clamped, it is a secret key like any other
    except Forged as fault:
        return fault.row
    return None


def hkdf(secret: bytes, info: bytes) -> bytes:
    """Return 32 bytes of input keying material by HKDF-SHA256 (RFC 5869) without salt."""
    # One block is one HMAC, which hashlib takes in half the time of cryptography's HKDF.
    return hmac.digest(hmac.digest(bytes(KEY_BYTES), secret, "sha256"), info + b"\x01", "sha256")


def seal(keys: A8, items: Rows, nonces: Octets, aads: Octets) -> Rows:
    """Return AES-256-GCM of each row of items [n, L] under its own key, [n, L * itemsize + 16], tag last.
    keys [n, 32]; n nonces of 12 bytes; n strings that are authenticated with the row but not sent.
    Elements are encrypted as little-endian bytes. ValueError if there is not one of each a row. Forged(i, ..)
    if row i has the key and the nonce of an earlier row: then two peers have one public key."""
    n = len(items)
    if isinstance(items, np.ndarray) and n == 0:
        return np.empty((0, items.shape[1] * items.itemsize + TAG_BYTES), np.uint8)
    if (row := reused(_strings(keys), nonces)) is not None:
        raise Forged(row, ONE_KEY)
    under = zip(*_ciphers(keys, nonces, aads, n), _strings(items), strict=True)
    return _together([aead.encrypt(once, item, aad) for aead, once, aad, item in under], np.dtype(np.uint8))


def reused(keys: Sequence[Any], nonces: Octets) -> int | None:
    """Return the first row that has the key and the nonce of a row before it; None without one."""
    if len(set(keys)) == len(keys):  # as always among honest peers
        return None
    pairs = list(zip(keys, nonces, strict=False))  # of another length they are refused elsewhere
    return next((k for k, pair in enumerate(pairs) if pair in pairs[:k]), None)


def open_(keys: A8, sealed: Rows, nonces: Octets, aads: Octets, dtype: DTypeLike) -> Rows:
    """Return the rows that `seal` sealed, [n, (S - 16) / itemsize] of "uint8" or "uint32"; sealed [n, S].
    Forged(i, "does not authenticate") for the first row whose key, nonce, associated data or content is
    not the sealed one; then no row's content is returned. ValueError if there is not one key, nonce and
    aad a row, or if S - 16 is no multiple of the item size."""
    n, kind = len(sealed), np.dtype(dtype)
    if kind not in (np.uint8, np.uint32):
        raise ValueError(f"dtype={dtype!r} must be 'uint8' or 'uint32'")
    if n == 0:
        return np.empty((0, (np.asarray(sealed).shape[1] - TAG_BYTES) // kind.itemsize), dtype)
    size = sealed[0].nbytes
    if sealed[0].dtype != np.uint8 or size < TAG_BYTES or (size - TAG_BYTES) % kind.itemsize:
        raise ValueError(f"rows of {size} bytes are not a tag of {TAG_BYTES} and whole {dtype} elements")
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
    once = list(nonces)
    if set(map(len, once)) != {NONCE_BYTES}:
        raise ValueError(f"nonces must have {NONCE_BYTES} bytes")
    return map(AESGCM, _strings(keys)), once, aads


def _strings(rows: Rows) -> list[Any]:
    # Short rows are many: one copy of them all, and slices of it, cost a fraction of an array for each row;
    # and the library reads bytes in less time than it takes to look into any other buffer.
    if isinstance(rows, list):
        return [np.ascontiguousarray(row, row.dtype.newbyteorder("<")).view(np.uint8).data for row in rows]
    width = rows.shape[1] * rows.itemsize
    everything = rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()
    return [everything[k * width : (k + 1) * width] for k in range(len(rows))]


def _together(strings: list[bytes], kind: np.dtype[Any]) -> Rows:
    stored = kind.newbyteorder("<")
    if len(strings[0]) >= LONG_BYTES:
        return [np.frombuffer(one, stored).astype(kind, copy=False) for one in strings]
    rows = np.frombuffer(bytearray().join(strings), stored).astype(kind, copy=False)
    return rows.reshape(len(strings), -1)


class SealedPipe:
    """One item carried to its receiver block by block: what `seal` and `open_` do to one row.
    opening: what the receiver takes for `sealing`; None if it does not open the item."""

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
        """Return what the receiver reads of a block; not to be trusted before `close`."""
        sealed = self._sealing.update(block.data)
        return block if self._opening is None else np.frombuffer(self._opening.update(sealed), np.uint8)

    def close(self) -> None:
        """End the item. Forged(0, "does not authenticate") if the receiver opened another one."""
        self._sealing.finalize()
        if self._opening is not None:
            try:
                self._opening.finalize_with_tag(self._sealing.tag)
            except InvalidTag:
                raise Forged(0, "does not authenticate") from None


def nonce(sender: int, counter: int) -> bytes:
    """Return 12 bytes: sender (4, big-endian), then counter (8, big-endian). ValueError out of range.

    >>> nonce(1, 2).hex()
    '000000010000000000000002'
    """
    try:
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
