"""Content as terms: bytes by how they were made, field elements as linear forms in unknowns.

Invariant: terms are those of Dolev and Yao (1983), equal if and only if they were made alike. Equal interned
terms are the same object, so they are compared, and found in a dictionary, by identity. A row is a tuple of
items: a `Term` for 32 bytes or a sealed row, a `Form` for an element of F_q or for a Shamir share over F_p.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

REALS = 0
"""In the place of a modulus: coefficients are fractions."""


class _Interned(type):
    """Makes each object once, so that equal parts give the same object."""

    @cache  # noqa: B019 - classes live as long as the process
    def __call__(cls, *parts: Hashable) -> Any:
        return super().__call__(*parts)


class Term:
    """Bytes, or an unknown of a linear form."""

    __slots__ = ()

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, eq=False, slots=True)
class Secret(Term, metaclass=_Interned):
    """32 bytes that a party drew, by name; scope tells a machine's rounds apart."""

    party: int
    name: str
    scope: tuple[Any, ...] = ()

    def __str__(self) -> str:
        again = f" (round {self.scope[0]})" if self.scope not in ((), (0,)) else ""
        return f"{self.name!r} of {who(self.party)}{again}"


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Term, metaclass=_Interned):
    """32 bytes that nobody drew: known to everybody who has the code."""

    value: bytes

    def __str__(self) -> str:
        return f"the constant {self.value[:4].hex()}..."


@dataclass(frozen=True, eq=False, slots=True)
class Public(Term, metaclass=_Interned):
    """The public key of a secret."""

    secret: Term

    def __str__(self) -> str:
        return f"public key of {self.secret}"


@dataclass(frozen=True, eq=False, slots=True)
class VerificationKey(Term, metaclass=_Interned):
    """The public key under which a secret's signatures verify."""

    secret: Term


@dataclass(frozen=True, eq=False, slots=True)
class Agreed(Term, metaclass=_Interned):
    """The key of two secrets, under a purpose: made from either and the other's public key."""

    between: frozenset[Term]
    info: bytes

    def __str__(self) -> str:
        return f"key agreed by {' and '.join(sorted(map(str, self.between)))}"


@dataclass(frozen=True, eq=False, slots=True)
class Sealed(Term):
    """A row under authenticated encryption."""

    key: Term
    row: Row
    nonce: bytes
    aad: bytes


@dataclass(frozen=True, eq=False, slots=True)
class Signed(Term, metaclass=_Interned):
    """A signature: made with the secret alone, and of nothing but what was said and the rows behind it."""

    secret: Term
    said: bytes
    rows: tuple[Term, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Tampered(Term):
    """A row of which a bit was flipped."""

    row: Row


@dataclass(frozen=True, eq=False, slots=True)
class Element(Term, metaclass=_Interned):
    """The k-th element of a seed's stream over F_q, uniform to who lacks the seed."""

    seed: Term
    q: int
    k: int

    def __str__(self) -> str:
        return f"PRG({self.seed})[{self.k}]"


@dataclass(frozen=True, eq=False, slots=True)
class Value(Term, metaclass=_Interned):
    """A secret as the constant term of its sharing: one for its nine limbs, which are shared alike."""

    secret: Term

    def __str__(self) -> str:
        return str(self.secret)


@dataclass(frozen=True, eq=False, slots=True)
class Coordinate(Term, metaclass=_Interned):
    """The k-th coordinate of a user's update; update tells those of one user apart."""

    user: int
    update: Hashable
    k: int

    def __str__(self) -> str:
        return f"x_{self.user}{'' if self.update in ('', 0) else f'^{self.update}'}[{self.k}]"


class Form:
    """A linear form over F_q: unknown -> coefficient, none of them zero."""

    __slots__ = ("of", "q")

    def __init__(self, q: int, of: dict[Term, Any]) -> None:
        self.q, self.of = q, of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and (self.q, self.of) == (other.q, other.of)

    __hash__ = None  # type: ignore[assignment]

    def over(self, q: int) -> Form:
        """Return a form over the reals as one over F_q: fractions have residues."""
        if self.q == q:
            return self
        return Form(q, {s: r for s, c in self.of.items() if (r := residue(c, q))})


Item = Term | Form
Row = tuple[Item, ...]
Rows = list[Row]


def residue(c: Any, q: int) -> Any:
    """Return a number modulo q, a fraction as numerator / denominator; over the reals as it is.

    >>> residue(Fraction(1, 2), 7), residue(-1, 7)
    (4, 6)
    """
    exact = Fraction(c)
    return exact if q == REALS else exact.numerator * pow(exact.denominator, -1, q) % q


def combined(q: int, parts: Iterable[tuple[Any, Item]]) -> Form:
    """Return the weighted sum of items; a coordinate that is no form yet is its own unknown."""
    total: dict[Term, Any] = {}
    for weight, item in parts:
        if isinstance(item, Form):
            for symbol, c in item.of.items():
                total[symbol] = total.get(symbol, 0) + weight * c
        else:
            total[item] = total.get(item, 0) + weight
    if q != REALS:
        return Form(q, {symbol: r for symbol, c in total.items() if (r := c % q)})
    return Form(q, {symbol: c for symbol, c in total.items() if c})


def who(party: int) -> str:
    """Return a party in plain English.

    >>> who(-1), who(3)
    ('the server', 'user 3')
    """
    return "the server" if party < 0 else f"user {party}"
