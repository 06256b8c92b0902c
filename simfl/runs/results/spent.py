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
    epsilon, stated = min(LARGEST, promised(dp, d, s.summed, s.rounds)), s.dp.epsilon is not None
    return Promise(epsilon=epsilon, delta=dp.delta, noise_multiplier=dp.noise_multiplier, stated=stated)


def _exposed(r: RoundSummary) -> int:
    """Return the users in a sum that an aborted round may have opened; 0 if no survivor was asked.

    Once survivors are asked, answers may come after the deadline, or open the sum before a forged share ends
    the round: an honest but curious server keeps them (test_spent.py).
    """
    # The reason begins with the stage (`Server._close`).
    if not (r.reason or "").startswith("recovery:"):
        return 0
    early = r.dropped.offline + r.dropped.training + r.dropped.upload
    return max(0, r.selected - r.surplus - early)


def _open_sum(r: RoundSummary, central: bool) -> tuple[int, int]:
    """Return the users in the sum of a round, and in the smallest part of it that is open."""
    survivors = r.survivors if r.completed else _exposed(r)
    # A trace does not have the parts of a round that is not private, so one user is the bound.
    alone = r.private is False and not central
    return survivors, min(survivors, 1) if alone else survivors


def measure(
    rounds: Sequence[RoundSummary], s: Scenario, d: int, members: Sequence[Sequence[int]] | None = None
) -> list[RoundSummary]:
    """Return the rounds with their noise and the epsilon spent so far.

    Args:
        rounds: Of one entry, in order; a round that was aborted before its recovery costs nothing.
        s: The entry's scenario, with `dp`.
        d: Length of an update.
        members: Users in each sum of a buffer, also if its recovery was aborted; None in rounds, as if each
            user were in all of them.
    """
    dp, users = s.common(d).dp, s.summed
    assert dp is not None
    sums = [_open_sum(r, dp.central) for r in rounds] if members is None else [(len(m),) * 2 for m in members]
    return [
        r.model_copy(
            update={"noise": dp.present(users, *of) if of[0] else None, "epsilon": min(LARGEST, epsilon)}
        )
        for r, of, epsilon in zip(rounds, sums, spent(dp, d, users, sums, members), strict=True)
    ]
