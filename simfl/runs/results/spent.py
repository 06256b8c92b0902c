"""The epsilon that rounds spent: a fold over the users in their sums."""

from collections.abc import Sequence

from simfl.runs.results.promise import LARGEST, Promise
from simfl.runs.results.round_summary import RoundSummary
from simfl.scenario.privacy_budget import promised, spent
from simfl.scenario.schema import Scenario


def promise_of(s: Scenario, d: int) -> Promise | None:
    """Return the promise of an entry with a model of length d; None without differential privacy.

    Args:
        s: The entry's scenario.
        d: Length of an update.
    """
    dp = s.common(d).dp
    if s.dp is None or dp is None or dp.noise_multiplier is None:
        return None
    epsilon, stated = min(LARGEST, promised(dp, d, s.cohort, s.rounds)), s.dp.epsilon is not None
    return Promise(epsilon=epsilon, delta=dp.delta, noise_multiplier=dp.noise_multiplier, stated=stated)


def measure(rounds: Sequence[RoundSummary], s: Scenario, d: int) -> list[RoundSummary]:
    """Return the rounds with their noise and the epsilon spent so far.

    Args:
        rounds: Of one entry, in order; a round without an aggregate costs nothing.
        s: The entry's scenario, with `dp`.
        d: Length of an update.
    """
    dp, users = s.common(d).dp, s.cohort
    assert dp is not None
    survivors = [r.survivors if r.completed else 0 for r in rounds]
    spending = zip(rounds, survivors, spent(dp, d, users, survivors), strict=True)
    return [
        r.model_copy(update={"noise": dp.present(users, n) if n else None, "epsilon": min(LARGEST, epsilon)})
        for r, n, epsilon in spending
    ]
