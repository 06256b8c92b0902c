"""Everything that follows from what an adversary saw, and which combinations of the updates are in it.

Given ideal primitives (a PRG's stream is uniform, encryption opens under its key only, an agreed key is known
to who holds one of the two secrets), a view is a linear map of the updates x and of uniform unknowns u. It
tells of x exactly what its combinations without any u tell, no more and no less. So `Knowledge.updates` is
not a bound: it is all that there is to know.

Closing: keys open what is sealed under them, seeds give their streams, enough shares give a secret, until
nothing new comes. Then the unknowns are eliminated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Self

from simfl.crypto.shamir import P
from simfl.dataplane.terms import (
    REALS,
    Agreed,
    Constant,
    Coordinate,
    Element,
    Form,
    Item,
    Public,
    Sealed,
    Secret,
    Tampered,
    Term,
    Value,
    VerificationKey,
)
from simfl.privacy.leaks.elimination import Basis, Line, Symbol, visible

MAX_DENOMINATOR, MAX_NUMERATOR = 64, 4096
"""Of fractions as which residues are shown."""


class Knowledge:
    """All that follows from items that were seen.

    Args:
        q: Modulus of the updates' field.
        own: Users whose updates are known.
    """

    def __init__(self, q: int, own: Collection[int] = ()) -> None:
        self.q, self.own = q, frozenset(own)
        self.labels: list[str] = []  # of facts, by number
        self.facts: dict[int, list[tuple[int, Form]]] = {q: [], P: []}
        self.known: dict[Term, str | tuple[int, ...]] = {}  # from where: words, or the facts that gave it
        self.sealed: list[tuple[str, Sealed]] = []
        self.relations: list[Line] = []  # between secrets that stay unknown
        self.basis: Basis = {}  # of what is known of the updates, once it is closed

    def joined_by(self, users: Collection[int]) -> Self:
        """Return a copy that more users' own updates are known to."""
        other = type(self)(self.q, self.own | set(users))
        other.labels = list(self.labels)
        other.facts = {q: list(facts) for q, facts in self.facts.items()}
        other.known, other.sealed = dict(self.known), list(self.sealed)
        return other

    def see(self, label: str, item: Item) -> None:
        """Take one item more; `close` before asking."""
        if isinstance(item, Coordinate):  # an update in the clear
            item = Form(self.q, {item: 1})
        if isinstance(item, Form):
            form = item.over(self.q) if item.q == REALS else item
            self.facts[form.q].append((len(self.labels), form))
            self.labels.append(label)
        elif isinstance(item, Sealed):
            self.sealed.append((label, item))
        elif not isinstance(item, Tampered):
            self.known.setdefault(item, label)

    def knows(self, term: Term) -> bool:
        """Return True if the adversary can make a term."""
        if term in self.known:
            return True
        if isinstance(term, Secret):  # asked most often, a hundred times a view
            return False
        if isinstance(term, Agreed):
            mine = next((secret for secret in term.between if self.knows(secret)), None)
            if mine is not None and all(self.knows(Public(other)) for other in term.between - {mine}):
                self.known[term] = f"agreed with {mine}"
                return True
            return False
        if isinstance(term, Public | VerificationKey):
            return self.knows(term.secret)
        return isinstance(term, Constant)

    def close(self) -> Self:
        """Open and reconstruct until nothing new comes."""
        while self._open() or self._reconstruct():
            pass
        self.basis = self.updates()
        return self

    def _open(self) -> bool:
        mine, sealed = list[tuple[str, Sealed]](), self.sealed
        self.sealed = []
        for label, item in sealed:
            (mine if self.knows(item.key) else self.sealed).append((label, item))
        for label, item in mine:
            for k, part in enumerate(item.row):
                self.see(f"{label}, opened" + f" [{k}]" * (len(item.row) > 1), part)
        return bool(mine)

    def _reconstruct(self) -> bool:
        if not self.facts[P]:
            return False
        before = len(self.known)
        lines = [{**self.unknown(form), number: 1} for number, form in self.facts[P]]
        self.relations = []
        for line in visible(lines, P, _no_value).values():
            values = [symbol for symbol in line if isinstance(symbol, Value)]
            if len(values) == 1:
                self.known[values[0].secret] = tuple(made for made in line if isinstance(made, int))
            else:
                self.relations.append(line)
        return len(self.known) > before

    def unknown(self, form: Form) -> Line:
        """Return a form without the unknowns that are known."""
        return {symbol: c for symbol, c in form.of.items() if not self._is_known(symbol)}

    def _is_known(self, symbol: Term) -> bool:
        if isinstance(symbol, Element):
            return self.knows(symbol.seed)
        if isinstance(symbol, Value):
            return self.knows(symbol.secret)
        return isinstance(symbol, Coordinate) and symbol.user in self.own

    def updates(self, of: Callable[[Coordinate], bool] = lambda symbol: True, traced: bool = False) -> Basis:
        """Return a basis of the combinations of (those) updates that are known.

        traced: each with the numbers of the facts that it is made of, which takes longer.
        """

        def hidden(symbol: Symbol) -> bool:
            if isinstance(symbol, Coordinate):
                return not of(symbol)
            return isinstance(symbol, Term)

        lines = (
            {**self.unknown(form), **({number: 1} if traced else {})} for number, form in self.facts[self.q]
        )
        return visible(lines, self.q, hidden)

    # -- in words
    def proof(self, line: Line) -> list[str]:
        """Return how a traced combination comes about: its facts, and how the seeds taken off were known."""
        forms, left = dict(self.facts[self.q]), dict[Term, int]()
        said = []
        for number, weight in line.items():
            if isinstance(number, int):
                said.append(f"{signed(weight, self.q)}{self.labels[number]}")
                for symbol, c in forms[number].of.items():
                    left[symbol] = (left.get(symbol, 0) + weight * c) % self.q
        seeds = dict.fromkeys(s.seed for s, c in left.items() if c and isinstance(s, Element))
        said += [f"less PRG({seed}): {self._source(seed)}" for seed in seeds]
        behind = dict.fromkeys(secret for seed in seeds for secret in self._behind(seed))
        known = [s for s, c in left.items() if c and isinstance(s, Coordinate) and s.user in self.own]
        said += [f"less {symbol}: user {symbol.user} colludes" for symbol in known]
        return said + [f"  {secret}: {self._source(secret)}" for secret in behind]

    def _behind(self, seed: Term) -> Iterator[Term]:
        """Yield the secrets that a seed was agreed with."""
        if isinstance(seed, Agreed):
            yield from sorted((secret for secret in seed.between if secret in self.known), key=str)

    def _source(self, term: Term) -> str:
        source = self.known.get(term, "known to everybody")
        if isinstance(source, str):
            return source
        return f"shares: {', '.join(self.labels[number] for number in source)}"


def _no_value(symbol: Symbol) -> bool:
    return isinstance(symbol, Term) and not isinstance(symbol, Value)


def signed(c: int, q: int) -> str:
    """Return a residue as the plainest fraction that it stands for, before what it multiplies.

    >>> signed(1, 2**31 - 1), signed(2**31 - 4, 2**31 - 1), signed(2**30, 2**31 - 1)
    ('+ ', '- 3 ', '+ 1/2 ')
    """
    for bottom in range(1, MAX_DENOMINATOR + 1):
        top = c * bottom % q
        top = top if top <= q // 2 else top - q
        if abs(top) <= MAX_NUMERATOR or bottom == MAX_DENOMINATOR:
            break
    if abs(top) > MAX_NUMERATOR:
        top, bottom = (c if c <= q // 2 else c - q), 1
    size = "" if (abs(top), bottom) == (1, 1) else f"{abs(top)}{f'/{bottom}' * (bottom > 1)} "
    return f"{'+' if top > 0 else '-'} {size}"


def in_words(line: Line, q: int) -> str:
    """Return a combination of updates as a sum."""
    terms = [f"{signed(c, q)}{symbol}" for symbol, c in line.items() if isinstance(symbol, Term)]
    return " ".join(terms).removeprefix("+ ")
