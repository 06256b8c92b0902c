"""Means with their 95 % intervals, and comparisons that respect them."""

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MOST_DIGITS = 3
"""Behind the point."""


class Estimate(NamedTuple):
    """A mean, and its 95 % interval."""

    mean: float
    """The mean of the values."""
    half: float | None
    """Half the width of the interval; None of a single value."""
    n: int
    """Number of values."""

    def text(self, digits: int = MOST_DIGITS, scale: float = 1) -> str:
        """Return mean and interval, without digits that the interval makes meaningless.

        Args:
            digits: Behind the point, at most.
            scale: The values are divided by it.

        >>> Estimate(0.22958, 0.0312, 40).text(), Estimate(0.22958, 0.0132, 40).text()
        ('0.23±0.03', '0.230±0.013')
        >>> Estimate(0.22958, None, 1).text(), Estimate(7.25, 0.0, 3).text()
        ('0.230', '7.250±0.000')
        """
        mean, half = self.mean / scale, None if self.half is None else self.half / scale
        if half:
            # The half width has one significant digit, or two if it begins with 1 or 2: there, rounding to
            # one would change it by up to a third.
            first = math.floor(math.log10(half))
            digits = max(0, min(digits, -first + (half < 3 * 10.0**first)))
        return f"{mean:.{digits}f}" + ("" if half is None else f"±{half:.{digits}f}")

    def ties(self, other: "Estimate") -> bool:
        """Return True where the intervals overlap, or, of single values, where these are equal."""
        # More pairs tie than by a test of the difference, as a + b >= sqrt(a^2 + b^2): a verdict is on the
        # safe side.
        return abs(self.mean - other.mean) <= (self.half or 0) + (other.half or 0)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean m of n >= 1 values with its interval, m ± t s / sqrt(n).

    s is the standard deviation (over n - 1), t the 97.5 % quantile of Student's t of n - 1 degrees of
    freedom.
    """
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    # Student's t and not the normal quantile, 1.96, which is far too narrow for few values: of three, t is
    # 4.30.
    half = student_quantile(n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Estimate(statistics.fmean(values), half, n)


# scipy has this too, but takes a fifth of a second to import.
# Most columns of a table are means over the same number of rounds.
@lru_cache(maxsize=256)
def student_quantile(df: int) -> float:
    """Return the 97.5 % quantile of Student's t of df >= 1 degrees of freedom.

    >>> f"{student_quantile(1):.4f} {student_quantile(39):.4f}"
    '12.7062 2.0227'
    """
    # By logarithms, as gamma overflows a float above 171.
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    # The normal quantile is the limit for large df, and below every one of Student's.
    t, step = statistics.NormalDist().inv_cdf(0.975), 1.0
    # Newton's method converges from below, as the distribution is concave there.
    while step > 1e-15 * t:
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (0.95 - _within(t, df)) / (2 * density)
        t += step
    return t


def _within(t: float, df: int) -> float:
    """Return P(-t < T < t) of Student's t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle, shrinks = math.atan(t / math.sqrt(df)), df / (df + t * t)
    odd = df % 2
    term, terms = math.cos(angle) if odd else 1.0, list[float]()
    for k in range(2 + odd, df + 1, 2):
        terms.append(term)
        term *= shrinks * (k - 1) / k
    # fsum, since up to df / 2 terms of one sign are added.
    total = math.sin(angle) * math.fsum(terms)
    return 2 / math.pi * (angle + total) if odd else total
