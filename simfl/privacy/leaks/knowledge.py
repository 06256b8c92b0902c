"""An adversary's knowledge: the closure of its view, and the combinations of updates in it.

Primitives are ideal: a PRG's stream is uniform, encryption opens under its key only, and an agreed key is
known to each party that holds one of the two secrets. A view is then a linear map of the updates x and of
uniform unknowns u. It determines exactly those combinations of x that it holds without any u. So
`Knowledge.updates` is not a bound: nothing else can be known.

The closure opens each sealed row whose key is known, expands each seed that is known, and reconstructs each
secret of which enough shares are known, until nothing new follows. Then the unknowns are eliminated. The
theorems of the papers are checked in this way in `tests/privacy/leaks/test_theorems.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Self

from simfl.crypto.shamir import P
from simfl.crypto.threshold_elgamal import L
from simfl.dataplane.group_terms import Pad, Point, Product, times
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
from simfl.privacy.leaks.elimination import Basis, Line, Symbol, visible, within

MAX_DENOMINATOR, MAX_NUMERATOR = 64, 4096
"""Bounds of the fractions as which residues are printed."""


class Knowledge:
    """All that follows from items that were seen.

    Args:
        q: Modulus of the updates' field.
        colluders: Users whose updates are known.
    """

    def __init__(self, q: int, colluders: Collection[int] = ()) -> None:
        self.q, self.colluders = q, frozenset(colluders)
        self.labels: list[str] = []
        """A label for each fact, by its number."""
        self.facts: dict[int, list[tuple[int, Form]]] = {q: [], P: [], L: []}
        """Linear forms that are known, with their numbers, by modulus: of updates, and of shares."""
        self.points: list[Point] = []
        """Points of the group that are known."""
        self.known: dict[Term, str | tuple[int, ...]] = {}
        """Terms that are known, each with its source: in words, or as the numbers of the facts behind it."""
        self.sealed: list[tuple[str, Sealed]] = []
        """Labelled rows whose key is not known."""
        self.relations: list[Line] = []
        """Relations between secrets that stay unknown."""
        self.basis: Basis = {}
        """Basis of the known combinations of updates, after `close`."""

    def joined_by(self, users: Collection[int]) -> Self:
        """Return a copy whose adversary also has these users' updates."""
        other = type(self)(self.q, self.colluders | set(users))
        other.labels = list(self.labels)
        other.facts = {q: list(facts) for q, facts in self.facts.items()}
        other.known, other.sealed = dict(self.known), list(self.sealed)
        other.points = list(self.points)
        return other

    def see(self, label: str, item: Item) -> None:
        """Add an item to the view; call `close` before queries."""
        if isinstance(item, Coordinate):  # an update in the clear
            item = Form(self.q, {item: 1})
        if isinstance(item, Point):
            self.points.append(item)
        elif isinstance(item, Form):
            # Fractions get residues, so that one elimination over F_q serves sums over the reals too.
            form = item.over(self.q) if item.q == REALS else item
            self.facts[form.q].append((len(self.labels), form))
            self.labels.append(label)
        elif isinstance(item, Sealed):
            self.sealed.append((label, item))
        # A row that was changed on its way opens for no key.
        elif not isinstance(item, Tampered):
            # The first source is kept: one is enough for a proof.
            self.known.setdefault(item, label)

    def knows(self, term: Term) -> bool:
        """Return True if the adversary can make a term."""
        if term in self.known:
            return True
        # Secrets are the most frequent query, a hundred times a view.
        if isinstance(term, Secret):
            return False
        if isinstance(term, Agreed):
            mine = next((secret for secret in term.between if self.knows(secret)), None)
            # One secret and the public keys of the others make an agreed key.
            if mine is not None and all(self.knows(Public(other)) for other in term.between - {mine}):
                self.known[term] = f"agreed with {mine}"
                return True
            return False
        if isinstance(term, Public | VerificationKey):
            return self.knows(term.secret)
        if isinstance(term, Pad):
            return all(map(self._is_known, term.products))
        return isinstance(term, Constant)

    def close(self) -> Self:
        """Open and reconstruct until nothing new follows; return itself."""
        # All rows that can be opened are, before an elimination: that is the costlier step.
        # `or`: elimination only runs when nothing can be opened.
        while self._open() or self._reconstruct() or self._decrypt():
            pass
        self.basis = self.updates()
        return self

    def _open(self) -> bool:
        # A new list: `see` appends to it the rows that are sealed within opened ones.
        opened, sealed = list[tuple[str, Sealed]](), self.sealed
        self.sealed = []
        for label, item in sealed:
            (opened if self.knows(item.key) else self.sealed).append((label, item))
        for label, item in opened:
            for k, part in enumerate(item.row):
                self.see(f"{label}, opened" + f" [{k}]" * (len(item.row) > 1), part)
        return bool(opened)

    def _reconstruct(self) -> bool:
        before = len(self.known)
        for p in (P, L):
            if not self.facts[p]:
                continue
            # Numbers of facts go along as further symbols, and are the proof afterwards.
            lines = [{**self.unknown(form), number: 1} for number, form in self.facts[p]]
            self.relations = []
            # A combination of shares with a single value is that secret; with several it relates them.
            for line in visible(lines, p, _no_value).values():
                values = [symbol for symbol in line if isinstance(symbol, Value)]
                if len(values) == 1:
                    self.known[values[0].secret] = tuple(number for number in line if isinstance(number, int))
                else:
                    self.relations.append(line)
        return len(self.known) > before

    def _decrypt(self) -> bool:
        """Find the pads of ciphertexts of which enough parts are known."""
        pads = [item.key for _, item in self.sealed if isinstance(item.key, Pad)]
        # The first halves r G of ciphertexts: a share that is known gives a part of each.
        halves = [point for point in self.points if all(isinstance(s, Element) for s in point.of)]
        own = [times(share, half) for _, share in self.facts[L] for half in halves] if pads else []
        basis = visible(map(self.unknown, [*self.points, *own]), L, _no_secret)
        new = [pad for pad in pads if within(self.unknown(Form(L, dict.fromkeys(pad.products, 1))), basis, L)]
        self.known |= dict.fromkeys(new, "parts of its decryption")
        return bool(new)

    def unknown(self, form: Form) -> Line:
        """Return a form without its symbols that are known."""
        # Known symbols can be subtracted, so they are left out before the elimination.
        return {symbol: c for symbol, c in form.of.items() if not self._is_known(symbol)}

    def _is_known(self, symbol: Term) -> bool:
        # A stream is known entirely, or, for an ideal PRG, not at all.
        if isinstance(symbol, Element):
            return self.knows(symbol.seed)
        if isinstance(symbol, Value):
            return self.knows(symbol.secret)
        # One factor is enough, since the point of the other is public.
        if isinstance(symbol, Product):
            return any(map(self._is_known, symbol.of))
        return isinstance(symbol, Coordinate) and symbol.user in self.colluders

    def updates(self, of: Callable[[Coordinate], bool] = lambda symbol: True, traced: bool = False) -> Basis:
        """Return a basis of the known combinations of updates.

        Args:
            of: True for a coordinate that a combination may have; all unless given.
            traced: Each combination has the numbers of its facts, which takes longer.
        """

        def hidden(symbol: Symbol) -> bool:
            if isinstance(symbol, Coordinate):
                return not of(symbol)
            return isinstance(symbol, Term)

        lines = (
            {**self.unknown(form), **({number: 1} if traced else {})} for number, form in self.facts[self.q]
        )
        return visible(lines, self.q, hidden)

    def proof(self, line: Line) -> list[str]:
        """Return the derivation of a traced combination, in words.

        Its lines are the facts that are added up, and the sources of the seeds and updates that are
        subtracted.
        """
        forms, total = dict(self.facts[self.q]), dict[Term, int]()
        steps = []
        for number, weight in line.items():
            if isinstance(number, int):
                steps.append(f"{signed(weight, self.q)}{self.labels[number]}")
                for symbol, c in forms[number].of.items():
                    # What does not cancel is subtracted with knowledge from elsewhere, which the lines below
                    # name.
                    total[symbol] = (total.get(symbol, 0) + weight * c) % self.q
        seeds = dict.fromkeys(s.seed for s, c in total.items() if c and isinstance(s, Element))
        steps += [f"less PRG({seed}): {self._source(seed)}" for seed in seeds]
        secrets = dict.fromkeys(secret for seed in seeds for secret in self._secrets_of(seed))
        colluding = [
            s for s, c in total.items() if c and isinstance(s, Coordinate) and s.user in self.colluders
        ]
        steps += [f"less {symbol}: user {symbol.user} colludes" for symbol in colluding]
        return steps + [f"  {secret}: {self._source(secret)}" for secret in secrets]

    def _secrets_of(self, seed: Term) -> Iterator[Term]:
        """Yield the known secrets that a seed was agreed with."""
        if isinstance(seed, Agreed):
            yield from sorted((secret for secret in seed.between if secret in self.known), key=str)

    def _source(self, term: Term) -> str:
        source = self.known.get(term, "known to all")
        if isinstance(source, str):
            return source
        return f"shares: {', '.join(self.labels[number] for number in source)}"


def _no_value(symbol: Symbol) -> bool:
    return isinstance(symbol, Term) and not isinstance(symbol, Value)


def _no_secret(symbol: Symbol) -> bool:
    return not isinstance(symbol, Product) or not any(isinstance(factor, Value) for factor in symbol.of)


def signed(c: int, q: int) -> str:
    """Return a residue as a sign and the simplest fraction that it stands for, to be put before a factor.

    >>> signed(1, 2**31 - 1), signed(2**31 - 4, 2**31 - 1), signed(2**30, 2**31 - 1)
    ('+ ', '- 3 ', '+ 1/2 ')
    """
    # The smallest denominator that gives a small numerator: the simplest fraction.
    for denominator in range(1, MAX_DENOMINATOR + 1):
        numerator = _centred(c * denominator % q, q)
        if abs(numerator) <= MAX_NUMERATOR:
            break
    else:
        # No simple fraction: the residue itself.
        numerator, denominator = _centred(c, q), 1
    value = f"{abs(numerator)}" + f"/{denominator}" * (denominator > 1)
    return f"{'+' if numerator > 0 else '-'} {f'{value} ' if value != '1' else ''}"


def _centred(c: int, q: int) -> int:
    """Return a residue of 0 .. q - 1 as the integer of least absolute value that it stands for."""
    return c if c <= q // 2 else c - q


def in_words(line: Line, q: int) -> str:
    """Return a combination of updates as a sum."""
    terms = [f"{signed(c, q)}{symbol}" for symbol, c in line.items() if isinstance(symbol, Term)]
    return " ".join(terms).removeprefix("+ ")
