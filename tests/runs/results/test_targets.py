"""Time to a target, by hand: the first evaluation that meets it, and whether every later one does."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.runs.folder.result import Result
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.targets import measure
from tests.engine.harness import ASYNC, SIX, run, script


def rounds(*accuracies: float | None, loss: tuple[float | None, ...] = ()) -> list[RoundSummary]:
    """Rounds that end after 10, 20, ... s; the n-th moves n bytes up and 100 n down."""
    losses = loss or (1.0,) * len(accuracies)
    return [
        RoundSummary.model_construct(
            accuracy=accuracy, loss=loss, end_s=10.0 * n, bytes_up=n, bytes_down=100 * n
        )
        for n, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), 1)
    ]


CASES: list[tuple[tuple[float | None, ...], float, tuple[Any, ...] | None]] = [
    ((0.5, 0.91, 0.88, 0.92, 0.93), 0.9, (20.0, 2, 3, 300, False, 0.91)),
    ((0.5, 0.91, 0.90, 0.92, 0.93), 0.9, (20.0, 2, 3, 300, True, 0.91)),
    ((0.5, 0.89, 0.88, 0.87, 0.93), 0.9, (50.0, 5, 15, 1500, True, 0.93)),
    ((0.9,), 0.9, (10.0, 1, 1, 100, True, 0.9)),
    ((0.5, 0.89), 0.9, None),
    ((None, 0.5, None, 0.9, None), 0.9, (40.0, 4, 10, 1000, True, 0.9)),  # failed rounds took time and bytes
    ((0.91, None, 0.89, None), 0.9, (10.0, 1, 1, 100, False, 0.91)),
    ((None, None), 0.0, None),
    ((), 0.9, None),
]


@pytest.mark.parametrize(("accuracies", "value", "expected"), CASES)
def test_accuracy(
    accuracies: tuple[float | None, ...], value: float, expected: tuple[Any, ...] | None
) -> None:
    (target,) = measure(rounds(*accuracies), {"accuracy": value}).values()
    assert target.value == value
    found = target.reached and tuple(vars(target.reached).values())
    assert found == expected


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((2.0, 0.4, 0.5), (2, True)),
        ((2.0, 0.4, 0.51), (2, False)),
        ((0.5, None, 0.5), (1, False)),  # a model that diverged has accuracy, and no loss
        ((None, 0.51, 0.6), None),
    ],
)
def test_loss_is_met_from_above(losses: tuple[float | None, ...], expected: tuple[int, bool] | None) -> None:
    reached = measure(rounds(0.1, 0.1, 0.1, loss=losses), {"loss": 0.5})["loss"].reached
    assert (reached and (reached.rounds, reached.kept)) == expected


def by_hand(result: Result, name: str, value: float) -> tuple[Any, ...]:
    """Return seconds, rounds and bytes until a round of the summary first has that accuracy."""
    listed = result.summary["protocols"][name]["rounds"]
    count = next(n for n, r in enumerate(listed, 1) if (r["accuracy"] or 0) >= value)
    until = listed[:count]
    moved = [sum(r[key] for r in until) for key in ("bytes_up", "bytes_down")]
    return (until[-1]["end_s"], count, *moved)


@pytest.mark.ci
def test_a_failed_round_on_the_way_counts() -> None:
    """Six users; in the second round too many are lost for LightSecAgg, and for no other."""
    lost = script(*((user, 1, "upload", "before_send") for user in range(3)))
    world = {**SIX, "protocols": ["fedavg", "lightsecagg"], "rounds": 4, "dropout": lost}
    accuracies = [m.accuracy for m in run(world).measured["lightsecagg"]]
    assert accuracies[1] is None
    value = max(accuracy for accuracy in accuracies if accuracy is not None)
    assert value > (accuracies[0] or 0)
    result = run({**world, "targets.accuracy": value})
    found = result.summary["protocols"]["lightsecagg"]["targets"]["accuracy"]["reached"]
    assert tuple(found[key] for key in ("after_s", "rounds", "bytes_up", "bytes_down")) == by_hand(
        result, "lightsecagg", value
    )
    assert found["rounds"] >= 3


def test_rounds_of_a_buffer_are_aggregations() -> None:
    accuracies = [m.accuracy or 0 for m in run({"protocols": ["fedbuff"]}, ASYNC).measured["fedbuff"]]
    value = max(accuracies)
    result = run({"protocols": ["fedbuff"], "targets.accuracy": value}, ASYNC)
    found = result.summary["protocols"]["fedbuff"]["targets"]["accuracy"]["reached"]
    assert found["rounds"] == accuracies.index(value) + 1 > 1
    assert tuple(found.values())[:4] == by_hand(result, "fedbuff", value)


def test_without_targets_there_are_none() -> None:
    assert run({"payload": "shadow"}).summary["protocols"]["fedavg"]["targets"] is None
