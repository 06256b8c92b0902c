"""The explorer finds every planted fault; its smallest pattern is a scenario that shows the fault again."""

from __future__ import annotations

from pathlib import Path

import pytest

import simfl
from simfl.engine.devices import Device, Job
from simfl.engine.server_side import ServerSide
from simfl.errors import RunFailed
from simfl.scenario.load import resolved_yaml
from simfl.studies.explore.cohort import Pattern
from simfl.studies.explore.rounds import Report, explore, judge, make_cohort, sample
from tests.studies.explore.faults import FAULTS, Fault, plant

ids = [f"{fault.protocol}-{fault.machine.__name__}" for fault in FAULTS]


def affected_users(pattern: Pattern) -> int:
    return sum(fate is not None for fate in pattern)


def exact(file: Path, protocol: str) -> list[bool | None]:
    """Whether each round of a scenario came to an exact aggregate, None if aborted; False if a run fails."""
    try:
        rounds = simfl.run(file).summary["protocols"][protocol]["rounds"]
    except RunFailed:
        return [False]
    return [r["aggregate_exact"] for r in rounds]


LONG = {"TooStale"}


@pytest.mark.ci(but=["OneAnswerTooMany"])
@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, marks=pytest.mark.slow) if f.machine.__name__ in LONG else f for f in FAULTS],
    ids=ids,
)
def test_a_planted_fault_is_found_shrunk_and_replayed(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cohort = make_cohort(fault.protocol, 4)
    with monkeypatch.context() as planted:
        plant(fault, planted)
        found = explore(cohort).violation
        assert found is not None
        assert affected_users(found.pattern) == fault.affected_users
        again = judge(cohort, found.pattern, found.detect, replay=True)[1]
        assert again, f"{found} is not what the engine does"
        file = tmp_path / "found.yaml"
        file.write_text(resolved_yaml(cohort.replayable(found.pattern, found.detect)))
        if fault.sum_is_wrong:
            assert set(exact(file, fault.protocol)) & {False, None}
    cohort = make_cohort(fault.protocol, 4)  # of honest machines
    assert judge(cohort, found.pattern, found.detect)[1] == ()
    assert judge(cohort, found.pattern, found.detect, replay=True)[1] == ()
    assert False not in exact(file, fault.protocol)


def test_a_cycle_that_ends_as_it_begins_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in the engine: the server's call is forgotten, but its machine waits for the user."""
    finish = ServerSide.finish

    def forgets(server: ServerSide, device: Device, job: Job, step: int) -> None:
        if job.task is None or not job.task.is_lost:
            finish(server, device, job, step)

    monkeypatch.setattr(ServerSide, "finish", forgets)
    found = explore(make_cohort("fedbuff", 4), affected_users=0).violation
    assert found is not None
    assert found.detect == "flapping"
    assert any("the server has no deadline for it" in text for text in found.invariants)


@pytest.mark.ci
def test_random_patterns_are_shrunk_by_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(fault for fault in FAULTS if fault.machine.__name__ == "AddsLateUploads")
    plant(fault, monkeypatch)
    seen: list[int] = []
    report = sample(make_cohort("lightsecagg", 8), 300, lambda now: seen.append(now.patterns))
    assert report.violation is not None
    assert [fate and (fate.point, fate.when) for fate in report.violation.pattern if fate] == [
        ("upload", "delay")
    ]
    assert seen == list(range(1, len(seen) + 1))


def test_a_machine_that_fails_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(FAULTS[0].machine):
        def unmask(self, got: object) -> object:
            raise KeyError("lost")

    plant(Fault("secagg", Fails, 0), monkeypatch)
    report = explore(make_cohort("secagg", 3))
    assert report == Report(1, 0, 1, report.violation)
    assert report.violation is not None
    assert report.violation.invariants == ("a machine failed: KeyError: 'lost'",)
