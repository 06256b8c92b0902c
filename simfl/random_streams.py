"""Named random streams: every draw is named by its purpose, user and round, and derived from one seed.

The law: a stream depends on the seed and on its own name only. Adding, removing or reordering other draws
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

_BYTES = 32


def derive(seed: int, *names: Name) -> bytes:
    """The 32 bytes of the stream `names` under `seed`, 0 <= seed < 2^256 (otherwise ValueError).

    1 and "1" are different names, ("a", "b") and ("ab",) too. TypeError for other kinds of names.

    >>> derive(1, "losses", 3) == derive(1, "losses", "3")
    False
    """
    if not 0 <= seed < 2**256:
        raise ValueError(f"seed={seed} must be at least 0 and below 2^256")
    return _hash(seed.to_bytes(_BYTES, "big"), names)


def _hash(key: bytes, names: tuple[Name, ...]) -> bytes:
    # `index` turns NumPy integers into plain ones, so that a user's number names one stream only.
    plain = [_quoted(name) if isinstance(name, str) else str(index(name)) for name in names]
    return blake2b(f"[{', '.join(plain)}]".encode(), key=key, digest_size=_BYTES).digest()


_quoted = lru_cache(maxsize=1024)(json.dumps)  # purposes recur; put together by hand, a list is faster


class Uniforms:
    """Uniform draws of (0, 1): each user has a row of its own, whose places are drawn in any order.

    Eight places are one keyed BLAKE2b of user and block, so nothing is kept: a user that nobody asks for
    costs nothing, and one that is asked for 2 us, where a generator costs 27 us and a kilobyte.
    """

    _name, _words = Struct("<QQ"), Struct("<8Q")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._last: tuple[int, int] | None = None  # its block is asked for again, as a slot often is
        self._block: tuple[int, ...] = ()

    def __call__(self, user: int, place: int) -> float:
        """The draw at a place of a user's row, on the 52-bit grid whose ends are neither 0 nor 1."""
        block = (user, place >> 3)
        if block != self._last:
            digest = blake2b(self._name.pack(*block), key=self._key).digest()
            self._last, self._block = block, self._words.unpack(digest)
        return ((self._block[place & 7] >> 12) + 0.5) * 2.0**-52

    def since(self, user: int, place: int) -> Iterator[float]:
        """The draws of a user's row from a place on."""
        return (self(user, later) for later in count(place))


class Streams:
    """All streams of one scenario."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def bytes(self, *names: Name) -> bytes:
        """`derive(seed, *names)`, 32 bytes."""
        return derive(self.seed, *names)

    def rng(self, *names: Name) -> np.random.Generator:
        """A fresh generator at the start of its stream: for the world's draws (availability, partition,
        losses, ...), never for masks or keys, as it is no cryptographic generator.

        >>> first, again = (Streams(1).rng("losses").random() for _ in range(2))
        >>> first == again
        True
        """
        seed = int.from_bytes(self.bytes(*names), "big")
        return np.random.Generator(np.random.Philox(seed))

    def uniforms(self, *names: Name) -> Uniforms:
        """Uniform draws for each user: for what the world draws where most users are never asked for."""
        return Uniforms(self.bytes(*names))


class Entropy:
    """A machine's source of secrets: 32 bytes by name, each name once.

    root: 32 bytes, as from `Streams.bytes` (otherwise ValueError). scope: what this machine is, such as
    its user and round; two machines of one root need different scopes.
    """

    def __init__(self, root: bytes, *scope: Name) -> None:
        if len(root) != _BYTES:
            raise ValueError(f"the root of an entropy has {len(root)} bytes, it must have {_BYTES}")
        self.scope = scope
        self._root = root
        self._drawn: set[str] = set()

    def __call__(self, name: str) -> bytes:
        """32 bytes. ValueError if `name` was drawn before: a mask used twice hides nothing."""
        if name in self._drawn:
            raise ValueError(f"{name!r} was drawn before from the entropy of {self.scope}")
        self._drawn.add(name)
        return self.peek(name)

    def peek(self, name: str) -> bytes:
        """The bytes that `name` yields, without drawing it: for the auditor."""
        return _hash(self._root, (*self.scope, name))


class ZeroEntropy:
    """`Entropy` where nothing is computed with the bytes, which are all zero: its law holds, no name is
    drawn twice."""

    def __init__(self, *scope: Name) -> None:
        self.scope = scope
        self._drawn: set[str] = set()

    def __call__(self, name: str) -> bytes:
        """32 zero bytes. ValueError if `name` was drawn before."""
        if name in self._drawn:
            raise ValueError(f"{name!r} was drawn before from the entropy of {self.scope}")
        self._drawn.add(name)
        return bytes(_BYTES)

    def peek(self, name: str) -> bytes:
        """What `name` yields."""
        return bytes(_BYTES)


class OsEntropy:
    """`Entropy` from the operating system, for machines on a real network. It does not replay.

    What was drawn is remembered as long as this object lives, for `peek`.
    """

    def __init__(self, *scope: Name) -> None:
        self.scope = scope
        self._drawn: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes:
        """32 fresh bytes. ValueError if `name` was drawn before."""
        if name in self._drawn:
            raise ValueError(f"{name!r} was drawn before from the entropy of {self.scope}")
        self._drawn[name] = os.urandom(_BYTES)
        return self._drawn[name]

    def peek(self, name: str) -> bytes:
        """The bytes that `name` yielded. ValueError if it was not drawn yet: nobody can know them."""
        if name not in self._drawn:
            raise ValueError(f"{name!r} was not drawn yet from the entropy of {self.scope}")
        return self._drawn[name]
