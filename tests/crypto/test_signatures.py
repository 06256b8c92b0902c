"""simfl.crypto.signatures against RFC 8032, section 7.1."""

from __future__ import annotations

import numpy as np
import pytest

from simfl.crypto import signatures
from simfl.crypto.keys import Forged


def row(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), np.uint8).reshape(1, -1)


SECRET = row("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = row("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNED = row(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_rfc_8032_test_2() -> None:
    assert (signatures.public(SECRET) == PUBLIC).all()
    assert (signatures.sign(SECRET, b"\x72") == SIGNED).all()
    assert (signatures.verify(PUBLIC, SIGNED, [b"\x72"]) == PUBLIC).all()


def test_rows_follow_the_signed_message() -> None:
    rows = np.array([[0x72]], np.uint8)
    assert (signatures.sign(SECRET, b"", rows) == SIGNED).all()
    # Of two signers, each has the rows at its own place.
    rows = np.arange(8, dtype=np.uint8).reshape(4, 2)
    secrets = [SECRET, np.zeros((1, 32), np.uint8)]
    publics = np.concatenate([signatures.public(secret) for secret in secrets])
    signed = [signatures.sign(s, b"of %d" % i, rows[i::2]) for i, s in enumerate(secrets)]
    signatures.verify(publics, np.concatenate(signed), [b"of 0", b"of 1"], rows)
    with pytest.raises(Forged, match="row 1: does not verify"):
        signatures.verify(publics, np.concatenate(signed), [b"of 0", b"of 1"], rows[[0, 1, 2, 2]])


@pytest.mark.parametrize("of", ["key", "signature", "message"])
def test_one_bit_of_anything_names_its_row(of: str) -> None:
    publics, signed, said = np.repeat(PUBLIC, 3, 0), np.repeat(SIGNED, 3, 0), [b"\x72"] * 3
    if of == "message":
        said[1] = b"\x73"
    else:
        {"key": publics, "signature": signed}[of][1, 0] ^= 1
    with pytest.raises(Forged, match="row 1: does not verify"):
        signatures.verify(publics, signed, said)


def test_one_of_each_is_needed() -> None:
    with pytest.raises(ValueError, match="one of each is needed"):
        signatures.verify(PUBLIC, SIGNED, [b"\x72"] * 2)
    with pytest.raises(ValueError, match="secret must be"):
        signatures.sign(SECRET[0], b"")
