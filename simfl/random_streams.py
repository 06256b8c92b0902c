"""Named random streams: every draw is named by its purpose, user and round, and derived from one seed.

Invariant: a stream depends on the seed and on its own name only. Adding, removing or reordering other draws
never shifts it, so protocols are compared on exactly the same world. The derivation is keyed BLAKE2b
(RFC 7693) over the JSON list of the names; golden values in the tests hold it fixed.
"""

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from operator import index
from struct import Struct
from typing import SupportsIndex

import numpy as np

Name = str | SupportsIndex
"""One part of a stream's name: a purpose, a user, a round."""

_BYTES = 32


def derive(seed: int, *names: Name) -> bytes:
    """Return the 32 bytes of the stream `names` under `seed`.

    1 and "1" are different names, and so are ("a", "b") and ("ab",).

    Raises:
        ValueError: Not 0 <= seed < 2^256.
        TypeError: A name is neither text nor an integer.

    >>> derive(0).hex()[:16], derive(0, "a") == derive(0, "a"), derive(0, 1) == derive(0, "1")
    ('9047059c8c4e1e2b', True, False)
    """
    if not 0 <= seed < 2**256:
        raise ValueError(f"seed={seed} must be at least 0 and below 2^256")
    return _hash(seed.to_bytes(_BYTES, "big"), names)


def _hash(key: bytes, names: tuple[Name, ...]) -> bytes:
    # `index` turns NumPy integers into plain ones, so that a user's number names one stream only.
    # Quotes and commas keep the names apart: 1 from "1", and ("a", "b") from ("ab",) (test_random_streams.py:
    # test_names_are_unambiguous).
    plain = [_quoted(name) if isinstance(name, str) else str(index(name)) for name in names]
    # The same bytes as `json.dumps` of the list, which the golden values fix (test_random_streams.py:
    # test_derivation_is_golden).
    return blake2b(f"[{', '.join(plain)}]".encode(), key=key, digest_size=_BYTES).digest()


# Purposes recur, and joining quoted names is faster than a JSON list.
_quoted = lru_cache(maxsize=1024)(json.dumps)


class Uniforms:
    """Uniform draws of (0, 1): each user has a separate row, whose places are drawn in any order.

    Eight places are one keyed BLAKE2b of user and block, so no state is held. A draw costs 2 us; a generator
    for each user would cost 27 us and a kilobyte. A user without draws costs nothing.
    """

    _name, _words = Struct("<QQ"), Struct("<8Q")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._last: tuple[int, int] | None = None
        """(user, block) of `_block`: the same slot is often read again."""
        self._block: tuple[int, ...] = ()

    def __call__(self, user: int, place: int) -> float:
        """Return the draw at a place of a user's row, on the 52-bit grid whose ends are neither 0 nor 1."""
        # Eight words of 8 bytes are one digest of 64 bytes.
        block = (user, place >> 3)
        if block != self._last:
            digest = blake2b(self._name.pack(*block), key=self._key).digest()
            self._last, self._block = block, self._words.unpack(digest)
        # The upper 52 of 64 bits, and half a step: all values are exact in a float64 of 53 bits, and a
        # logarithm of one, or of 1 minus one, is finite.
        return ((self._block[place & 7] >> 12) + 0.5) * 2.0**-52

    def since(self, user: int, place: int) -> Iterator[float]:
        """Return the draws from a place of a user's row on."""
        return (self(user, later) for later in count(place))


class Streams:
    """The random streams of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def bytes(self, *names: Name) -> bytes:
        """Return 32 bytes, as `derive` does."""
        return derive(self.seed, *names)

    def rng(self, *names: Name) -> np.random.Generator:
        """Return a generator for the world's draws, never for masks or keys: it is not cryptographic."""
        return np.random.Generator(np.random.Philox(int.from_bytes(self.bytes(*names), "big")))

    def uniforms(self, *names: Name) -> Uniforms:
        """Return uniform draws by user and place."""
        return Uniforms(self.bytes(*names))


class ZeroEntropy:
    """A machine's source of secrets, 32 bytes by a name that is drawn once; all zero in a shadow run.

    Args:
        scope: Names of the machine, such as its user and round.
    """

    # A user in a round has one, so no dict.
    __slots__ = ("_drawn", "scope")

    def __init__(self, *scope: Name) -> None:
        self.scope = scope
        # Most machines draw one name or none, and an empty set takes 216 bytes.
        self._drawn: tuple[str, ...] = ()

    def __call__(self, name: str) -> bytes:
        """Return 32 bytes.

        Raises:
            ValueError: `name` was drawn before: a mask that is used twice hides nothing.
        """
        if name in self._drawn:
            raise ValueError(f"{name!r} was drawn before from the entropy of {self.scope}")
        self._drawn += (name,)
        return self.peek(name)

    def peek(self, name: str) -> bytes:
        """Return the bytes of `name` without drawing it, for the auditor."""
        return bytes(_BYTES)


class Entropy(ZeroEntropy):
    """Secrets derived from a root.

    Args:
        root: 32 bytes.
        scope: Names of the machine; the machines of one root have different ones.

    Raises:
        ValueError: The root has another length.
    """

    def __init__(self, root: bytes, *scope: Name) -> None:
        if len(root) != _BYTES:
            raise ValueError(f"the root of an entropy must have {_BYTES} bytes, not {len(root)}")
        super().__init__(*scope)
        self._root = root

    def peek(self, name: str) -> bytes:
        return _hash(self._root, (*self.scope, name))


class OsEntropy(ZeroEntropy):
    """Secrets from the operating system, which cannot be replayed; held for `peek`."""

    def __init__(self, *scope: Name) -> None:
        super().__init__(*scope)
        self._secrets: dict[str, bytes] = {}

    def peek(self, name: str) -> bytes:
        """Return the bytes of `name`.

        Raises:
            ValueError: `name` was not drawn yet, so its bytes do not exist.
        """
        if name not in self._drawn:
            raise ValueError(f"{name!r} was not drawn yet from the entropy of {self.scope}")
        # Held, since the operating system returns other bytes each time and the auditor asks for these once
        # more.
        return self._secrets.setdefault(name, os.urandom(_BYTES))
