"""What is learned of users' updates: from sums of many rounds, and by attacks on recorded runs.

`simfl privacy sums` and `simfl privacy attack` print the results of these functions. A proof, `simfl.proof`,
varies a protocol's losses: it is a study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simfl.privacy.least_squares import WindowResult
    from simfl.privacy.recorded import Attacked
    from simfl.scenario.schema import Scenario

Stage = Callable[[str], None]


def _silent(stage: str) -> None:
    """Show nothing."""


def sums(
    target: str | Path | Mapping[str, Any] | Scenario,
    first: int | None = None,
    last: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    on_stage: Stage | None = None,
) -> dict[str, WindowResult]:
    """Reconstruct users' updates from the sums of many rounds, by least squares; return the result by entry.

    Args:
        target: The folder of a run with `record_updates: true`, or a scenario to run first.
        first: First round of the window; unless given, it has the last 2 N rounds.
        last: Last round of the window; the run's last unless given.
        overrides: Values of the scenario by dotted key.
        out: Folder of the scenario's run; a new one in `runs/` unless given.
        on_stage: Called with a sentence as each stage begins.

    Raises:
        BadInput: The run recorded no updates, or has no aggregate in the window.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as out:
    ...     results = sums("scenarios/reconstruction.yaml", overrides={"rounds": 2}, out=out)
    >>> results["random"].aggregates
    2
    """
    from simfl.privacy import recorded
    from simfl.privacy.least_squares import attack_window

    folder = recorded.folder_of(target)
    if folder is None:
        scenario = recorded.scenario_to_run(target, overrides)
        folder = recorded.run_into(out, scenario, on_stage or _silent)
    return {
        file.stem.removeprefix("updates-"): attack_window(file, first, last)
        for file in recorded.update_files(folder)
    }


def attack(
    kind: str,
    target: str | Path | Mapping[str, Any] | Scenario,
    settings: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    seed: int = 1,
    on_stage: Stage | None = None,
) -> Attacked:
    """Attack users' updates with what the server saw in a recorded run; write a table and a figure there.

    Args:
        kind: A kind of `simfl list attacks`, or `path.py:Name`.
        target: The folder of a run with `record_updates: true`, or a scenario to run first.
        settings: Settings of the attack, such as {"steps": 500}.
        overrides: Values of the scenario by dotted key.
        out: Folder of the scenario's run; a new one in `runs/` unless given.
        seed: Seed of the attack's own draws.
        on_stage: Called with a sentence as each stage begins.

    Raises:
        BadInput: The run, its data or how they are dealt rule the attack out; nothing was run then.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as out:
    ...     done = attack("least_squares", "scenarios/reconstruction.yaml", overrides={"rounds": 2}, out=out)
    >>> done.files
    ('attack-least_squares.json', 'attack-least_squares.svg')
    """
    from simfl.privacy import recorded

    chosen, folder = recorded.attack_of(kind, settings or {}), recorded.folder_of(target)
    s = recorded.scenario_to_run(target, overrides) if folder is None else recorded.scenario_of(folder)
    return recorded.perform(chosen, kind, s, folder, out, seed, on_stage or _silent)
