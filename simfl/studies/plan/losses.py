"""The probabilities of a fleet's losses and of its coalitions: how many of a round's users they can be.

Users are lost by themselves (a binomial number), in groups (a mixture of binomials, by how many groups are
lost) or as an exact fraction. Each user's class is drawn by itself, so a user of a round is lost with the
mean probability of the classes. Those of a round who collude are a hypergeometric number, as the server does
not know whom it draws.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from simfl.scenario.schema import Scenario
from simfl.scenario.user_classes import settings_of
from simfl.world.dropout import Chance

MAX_CASES = 10_000  # of groups that are lost together, that are added up


@dataclass(frozen=True)
class Losing:
    """The chances of a round's losses. cases: (probability, a user's chance before its upload, and in all),
    by how many groups are lost; sure: the fractions are exact; measured: the users in whose rounds they were
    counted, 0 where they are computed."""

    cases: tuple[tuple[float, float, float], ...]
    sure: bool = False
    measured: int = 0

    @classmethod
    def seen(cls, lost: int, users: int) -> "Losing":
        """Return the chances where so many of these users were missed in plain rounds: the upper end of
        the 95 % interval (Clopper and Pearson 1934), and as much again until the recovery."""
        from scipy.special import betaincinv

        p = 1.0 if lost >= users else float(betaincinv(lost + 1, users - lost, 0.975))
        return cls(((1.0, p, 1 - (1 - p) ** 2),), measured=users)

    @classmethod
    def of(cls, s: Scenario) -> "Losing | None":
        """Return the chances in a scenario's rounds; None where they do not follow from its models of losses:
        one does not know them, or users come and go, or run empty."""
        if s.network.outages or any(
            own.availability.changes != "never" or (own.energy is not None and own.energy.battery is not None)
            for own in settings_of(s).values()
        ):
            return None
        shares = {"": 1.0} if s.population.classes is None else {
            name: own.share for name, own in s.population.classes.items()
        }  # fmt: skip
        found = [own.dropout.chance() for own in settings_of(s).values()]
        chances = [chance for chance in found if chance is not None]
        if len(chances) < len(found) or math.prod(chance.groups + 1 for chance in chances) > MAX_CASES:
            return None
        each = [list(_cases(chance)) for chance in chances]
        cases = []
        for combined in product(*each):
            weighed = list(zip(shares.values(), combined, strict=True))
            probability = math.prod(p for p, _, _ in combined)
            before = sum(share * b for share, (_, b, _) in weighed)
            in_all = sum(share * (b + a) for share, (_, b, a) in weighed)
            cases.append((probability, before, in_all))
        return cls(tuple(cases), len(chances) == 1 and chances[0].sure)

    @property
    def mean(self) -> float:
        """The probability that a user is lost in a round."""
        return sum(probability * in_all for probability, _, in_all in self.cases)

    def more_than(self, lost: int, users: int, before: bool = False) -> float:
        """Return the probability that more than so many of a round's users are lost, or lost `before` the
        server has their uploads.

        >>> Losing(((1.0, 0.1, 0.1),)).more_than(1, 2)
        0.010000000000000002
        >>> Losing(((1.0, 0.1, 0.1),), sure=True).more_than(2, 20)
        0.0
        """
        chances = ((p, early if before else in_all) for p, early, in_all in self.cases)
        return self._over(lost, users, ((p, each, each * users) for p, each in chances))

    def after_more_than(self, lost: int, uploads: int, users: int) -> float:
        """Return the probability that more than so many of those whose uploads are there, out of a round's
        users, are lost after that."""
        cases = ((p, in_all - early, 1 - early) for p, early, in_all in self.cases)
        chances = ((p, late / left if left else 0.0, late * users) for p, late, left in cases)
        return self._over(lost, uploads, chances)

    def _over(self, lost: int, drawn: int, cases: Iterable[tuple[float, float, float]]) -> float:
        """Return the probability that more than so many of those who are drawn are lost. cases: of each its
        probability, the chance of a user, and the number of those lost where that is sure."""
        from scipy.special import bdtrc

        if lost >= drawn:
            return 0.0
        found = 0.0
        for probability, each, number in cases:
            over = float(round(number) > lost) if self.sure else float(bdtrc(lost, drawn, each))
            found += probability * over
        return min(1.0, found)

    def after_at_most(self, uploads: int, users: int, failure: float) -> int:
        """Return the least number of losses after the upload that is not exceeded but with a probability."""
        return least(uploads, lambda lost: self.after_more_than(lost, uploads, users) <= failure)

    def at_most(self, users: int, failure: float, before: bool = False) -> int:
        """Return the least number that is not exceeded but with such a probability.

        >>> Losing(((1.0, 0.1, 0.1),)).at_most(100, 1e-3)
        20
        """
        return least(users, lambda lost: self.more_than(lost, users, before) <= failure)


def _cases(chance: Chance) -> Iterator[tuple[float, float, float]]:
    """Yield a class's cases: the probability of each number of lost groups, and a user's chances then."""
    if not chance.groups:
        yield 1.0, chance.before, chance.after
        return
    G, p = chance.groups, chance.before + chance.after
    for lost in range(G + 1):
        probability = math.comb(G, lost) * p**lost * (1 - p) ** (G - lost)
        hit = lost / G
        yield probability, hit if chance.before else 0.0, hit if chance.after else 0.0


@dataclass(frozen=True)
class Coalition:
    """So many colluders among all users, of whom a round draws some."""

    colluders: int
    users: int

    def more_than(self, T: int, drawn: int) -> float:
        """Return the probability that more than T of the drawn users collude.

        >>> round(Coalition(1, 4).more_than(0, 2), 9)
        0.5
        """
        from scipy.stats import hypergeom

        return float(hypergeom.sf(T, self.users, self.colluders, drawn))

    def at_most(self, drawn: int, probability: float) -> int:
        """Return the least T that is not exceeded but with such a probability.

        >>> Coalition(25, 500).at_most(500, 2**-40), Coalition(25, 500).at_most(100, 2**-40)
        (25, 21)
        """
        return least(min(self.colluders, drawn), lambda T: self.more_than(T, drawn) <= probability)


def pdtrc(many: int, mean: float) -> float:
    """Return the probability that a Poisson number of a mean is above `many`.

    >>> round(pdtrc(0, 1.0), 4)
    0.6321
    """
    from scipy.special import pdtrc as tail

    return float(tail(many, mean))


def least(most: int, fits: Callable[[int], bool]) -> int:
    """Return the least number from 0 to `most` that fits, as all above it do."""
    return bisect_left(range(most), True, key=fits)
