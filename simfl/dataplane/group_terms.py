"""Threshold ElGamal on terms: points are linear forms in the exponent of the base point, over the order L.

Symbols of a share or a point are `Value`s of drawn secrets and `Element`s of seeds. Decryption multiplies two
of them: `Product`. A ciphertext is sealed under its `Pad`, which needs the point of the sum of its products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.crypto import threshold_elgamal as elgamal
from simfl.crypto.threshold_elgamal import L
from simfl.dataplane.terms import Element, Form, Rows, Sealed, Term, Value, _Interned, combined


class Point(Form):
    """A point of the group: the form that multiplies the base point."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Product(Term, metaclass=_Interned):
    """The product of two symbols in an exponent."""

    of: frozenset[Term]
    """The two."""


@dataclass(frozen=True, eq=False, slots=True)
class Pad(Term, metaclass=_Interned):
    """The key of a ciphertext: a hash of r Y."""

    products: frozenset[Term]
    """The products of r with the secrets behind the public key Y, whose sum is the exponent of r Y."""


def _only(rows: Any) -> Any:
    ((item,),) = rows
    return item


def _deal(secret: Rows, seed: Rows, points: Sequence[int], t: int) -> Rows:
    symbols = [Value(_only(secret)), *(Element(_only(seed), L, k) for k in range(t - 1))]
    return [(Form(L, {s: pow(x, k, L) for k, s in enumerate(symbols)}),) for x in points]


def _encrypt(key: Rows, items: Rows, seed: Rows) -> Rows:
    rows: Rows = []
    for k, row in enumerate(items):
        r = Element(_only(seed), L, k)
        pad = Pad(frozenset(Product(frozenset((s, r))) for s in _only(key).of))
        rows.append((Point(L, {r: 1}), Sealed(pad, row, b"", b"")))
    return rows


def times(share: Form, point: Form) -> Point:
    """Return the point (r G) times a share."""
    (r,) = point.of
    return Point(L, {Product(frozenset((s, r))): c for s, c in share.of.items()})


def _combine(hidden: Rows, parts: Sequence[Rows], points: Sequence[int]) -> Rows:
    weights, rows = elgamal.at_zero(points), []
    for k, (item,) in enumerate(hidden):
        total = combined(L, zip(weights, (part[k][0] for part in parts), strict=True)).of
        assert isinstance(item, Sealed)
        # All coefficients of the shares must cancel, so that r Y is left.
        if total != dict.fromkeys(item.key.products, 1):  # type: ignore[attr-defined]
            raise ValueError("parts of a decryption do not belong to one ciphertext")
        rows.append(item.row)
    return rows


GROUP_TWINS: dict[Any, Callable[..., Rows]] = {
    elgamal.point: lambda secret: [(Point(L, {Value(_only(secret)): 1}),)],
    elgamal.deal: _deal,
    elgamal.add_shares: lambda shares: [(combined(L, [(1, row[0]) for row in shares]),)],
    elgamal.add_points: lambda points: [(Point(L, combined(L, [(1, row[0]) for row in points]).of),)],
    elgamal.encrypt: _encrypt,
    elgamal.decrypt_share: lambda share, points: [(times(_only(share), row[0]),) for row in points],
    elgamal.combine: _combine,
}
"""Kernel -> its twin; `symbolic.TWINS` has them."""
