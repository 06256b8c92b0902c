"""The minibatches of a cohort are drawn a few at a time, and do not depend on how many."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import numpy as np
import pytest

from simfl.learning import minibatches
from simfl.learning.closed_form import ClosedForm
from simfl.learning.data import Split
from simfl.learning.minibatches import Cohort, generator, orders, schedules
from simfl.learning.sgd import LocalSgd

SEEDS = [bytes([k]) * 32 for k in range(4)]
COUNTS, BATCH, EPOCHS = (11, 7, 5, 0), 5, 9
STEPS = (27, 14, 3, 0)  # the first two have 3 and 2 minibatches an epoch; the third ends early


def cohort(epochs: int = EPOCHS) -> Cohort:
    parts = [np.arange(count) + 100 * k for k, count in enumerate(COUNTS)]
    sgd = LocalSgd(epochs=epochs, batch_size=BATCH, lr=0.1)
    return Cohort(np.zeros((4, 3), np.float32), parts, SEEDS, sgd, [0.1] * 4, STEPS)


@pytest.mark.parametrize("drawn", [1, 11, 25, 2**20])
def test_orders_do_not_depend_on_numbers_drawn_at_once(drawn: int) -> None:
    """All epochs at once, as one call of numpy draws them, against some at a time."""
    whole = generator(SEEDS[1][:16]).permuted(np.tile(np.arange(11), (EPOCHS, 1)), axis=1)
    assert np.array_equal(np.concatenate(list(orders(SEEDS[1], 11, EPOCHS, drawn))), whole)


@pytest.mark.parametrize("drawn", [1, 30, 120, 2**20])
def test_schedules_hold_each_clients_minibatches(drawn: int) -> None:
    """Each client's samples at each step, in the order of its own draws, under weights that add up to 1."""
    step = 0
    for plan in schedules(cohort(), drawn):
        assert plan.first == step
        for rows, weights, active in zip(plan.rows, plan.weights, plan.active, strict=True):
            assert active == sum(steps > step for steps in STEPS)
            for k in range(active):
                batches = -(-COUNTS[k] // BATCH)
                (order,) = islice(
                    (row for some in orders(SEEDS[k], COUNTS[k], EPOCHS) for row in some),
                    step // batches,
                    step // batches + 1,
                )
                expected = 100 * k + order[step % batches * BATCH :][:BATCH]
                assert rows[k, : len(expected)].tolist() == expected.tolist()
                share = [1 / len(expected)] * len(expected)
                assert weights[k].tolist() == share + [0.0] * (BATCH - len(expected))
            step += 1
    assert step == max(STEPS)


def test_million_epochs_take_little_memory() -> None:
    """One client with 25 samples; all orders at once would take 200 MB."""
    tracemalloc.start()
    first = next(orders(bytes(32), 25, 1_000_000))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first.shape[1] == 25
    assert taken < 30e6


def test_training_in_several_schedules_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax regression of four clients, its minibatches drawn together and a few at a time."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(400, 1, 1, 2)).astype(np.float32), rng.integers(0, 3, 400)
    split = Split(x, y, x, y, 3)
    model = ClosedForm(split, "cpu", np.float64)
    wide = Cohort(np.zeros((4, 9)), cohort().parts, SEEDS, cohort().sgd, [0.1] * 4, STEPS)
    together = model.train(wide)
    monkeypatch.setattr(minibatches.schedules, "__defaults__", (30,))
    assert np.array_equal(model.train(wide), together)
    assert np.abs(together[:3]).min() > 0
