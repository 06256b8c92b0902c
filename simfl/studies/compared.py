"""The folders that are compared, read: runs, folders with repeats of a run, sweeps. No code is executed."""

import csv
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simfl.config.digests import checked, names_in
from simfl.errors import BadInput, reason
from simfl.reports.folder import open_summary, time_in
from simfl.runs.folder.latest import need_run, runs_here
from simfl.runs.folder.repeats import finished, repeats_in
from simfl.runs.folder.unfinished import recover
from simfl.runs.results.columns import Measure
from simfl.runs.results.compare import Case, Comparison, Key, Side
from simfl.runs.results.statistics import Estimate
from simfl.runs.results.summary import Summary, read
from simfl.scenario.load import look_at
from simfl.studies.sweep.tables import MEANS, Row

MEANS_FILE = "means.csv"


def compare(*folders: str | Path) -> Comparison:
    """Compare two or more runs, repeats of a run, or sweeps: settings, times with verdicts, and bytes.

    Args:
        folders: of runs, or all of sweeps; the first is the reference. No code of theirs is executed.

    Returns:
        A comparison: `settings`, those that differ, by dotted key; `matches`, the entries that several have,
        each with its `verdicts` (`faster`, `slower` or `tie`); `dump()`, all of it as plain values.

    Raises:
        BadInput: one is named twice, cannot be read, is of another kind, or they have nothing in common.

    >>> import simfl, tempfile
    >>> folders = [tempfile.mkdtemp() for _ in range(2)]
    >>> settings = {"rounds": 1, "payload": "shadow", "protocols": ["secagg"]}
    >>> result = simfl.run("scenarios/tutorial.yaml", settings, folders[0])
    >>> result = simfl.run("scenarios/tutorial.yaml", settings | {"rounds": 2}, folders[1])
    >>> comparison = simfl.compare(*folders)
    >>> comparison.settings["rounds"], comparison.matches[0].verdicts[1].relation
    ([1, 2], 'tie')
    """
    paths = [Path(folder) for folder in folders]
    if len(paths) < 2:
        raise BadInput("compare: takes two folders or more")
    places = [path.resolve() for path in paths]
    for folder, place in zip(paths, places, strict=True):
        if not place.is_dir():
            raise BadInput(f"{folder}: there is no such folder; {runs_here()}")
        if places.count(place) > 1:
            raise BadInput(f"{folder} is named twice: compare it with another folder")
    kinds = ["a sweep" if (folder / MEANS_FILE).exists() else "a run" for folder in paths]
    if len(set(kinds)) > 1:
        held = ", ".join(f"{folder} holds {kind}" for folder, kind in zip(paths, kinds, strict=True))
        raise BadInput(f"{held}: compare runs with runs, and sweeps with sweeps")
    names = Counter(place.name for place in places)
    labels = [
        place.name if names[place.name] == 1 else str(folder)
        for folder, place in zip(paths, places, strict=True)
    ]
    pairs = list(zip(paths, labels, strict=True))
    sides = [_run(*pair) for pair in pairs] if kinds[0] == "a run" else _sweeps(pairs)
    found = Comparison(sides)
    if not found.matches:
        entries = (f"{side.label} has {_listed(side.cases)}" for side in sides)
        raise BadInput(f"nothing to compare, no entry has the same name: {'; '.join(entries)}")
    return found


def _listed(cases: Iterable[Key]) -> str:
    return ", ".join(" at ".join(filter(None, reversed(key))) for key in cases) or "none"


def _run(folder: Path, label: str) -> Side:
    """Return a run, or the finished repeats that are in a folder."""
    if repeats_in(folder):
        runs = list(finished(folder))
    else:
        need_run(folder)
        recover(folder)
        runs = [folder]
    scenarios = [look_at(run / "resolved.yaml") for run in runs]
    summaries = [open_summary(run, s) for run, s in zip(runs, scenarios, strict=True)]
    settings = scenarios[0].model_dump(mode="json")
    for run, other in zip(runs[1:], scenarios[1:], strict=True):
        if other.model_dump(mode="json") != settings:
            raise BadInput(f"{run} is of another scenario than {runs[0]}: these are no repeats")
    first = summaries[0]
    noisy = first.clock != "modelled"
    cases = {}
    for name in first.protocols:
        protocols = [s.protocols[name] for s in summaries if name in s.protocols]
        cases["", name] = Case.of_runs(protocols, noisy)
    return Side(
        label=label,
        folder=str(folder),
        kind="run",
        over="runs" if len(runs) > 1 else "rounds" if noisy else "",
        settings={**settings, "versions": first.versions},
        cases=cases,
        clock=first.clock,
        time=time_in(runs[0]),
        interrupted=any(s.interrupted for s in summaries),
        drifts=[s.drift for s in summaries],
        summaries=[
            (label if len(runs) == 1 else f"{label}, {run.name}", s.protocols)
            for run, s in zip(runs, summaries, strict=True)
        ],
    )


def _sweeps(pairs: Sequence[tuple[Path, str]]) -> list[Side]:
    every = [_means(folder / MEANS_FILE) for folder, _ in pairs]
    common = [key[0] for key in every[0] if all(key in cases for cases in every)]
    sides = []
    for (folder, label), cases in zip(pairs, every, strict=True):
        over = any(e and e.half is not None for case in cases.values() for e in case.estimates.values())
        settings = _settings(folder, common[0]) if common else {}
        cells = _cells(folder)
        side = Side(
            label=label,
            folder=str(folder),
            kind="sweep",
            over="seeds" if over else "",
            settings=settings,
            cases=cases,
            drifts=[cell.drift for cell in cells.values()],
            summaries=[(f"{label}, cell {key}", cell.protocols) for key, cell in cells.items()],
        )
        sides.append(side)
    return sides


@contextmanager
def _table(path: Path) -> Iterator[Iterator[dict[str, str]]]:
    checked(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield csv.DictReader(file)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({reason(error)})") from None
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise BadInput(f"{path}: not a table of a sweep ({type(error).__name__}: {error})") from None


def _means(path: Path) -> dict[Key, Case]:
    found: dict[Key, dict[Measure, Estimate | None]] = {}
    with _table(path) as rows:
        for row in rows:
            measures = found.setdefault((_point(row, MEANS), row["protocol"]), {})
            known = row["mean"] != ""
            measures[row["measure"], row["phase"]] = _estimate(row) if known else None
    return {key: Case.of_means(measures) for key, measures in found.items()}


def _estimate(row: dict[str, str]) -> Estimate:
    mean, half = float(row["mean"]), float(row["half_95"]) if row["half_95"] else None
    if not math.isfinite(mean + (half or 0)):
        raise ValueError(f"{row['mean']}±{row['half_95']} is not finite")
    return Estimate(mean, half, int(row["seeds"]))


def _point(row: dict[str, str], fixed: Container[str]) -> str:
    """Return the values of a row that vary in its sweep, in words, without those that its point lacks."""
    return ", ".join(f"{key}={value}" for key, value in row.items() if key not in fixed and value)


def _cells(folder: Path) -> dict[str, Summary]:
    """Return the summary of each cell that a sweep's table lists and its folder has, by key."""
    path = folder / "sweep.csv"
    if not names_in(folder, path.name):
        return {}
    with _table(path) as rows:
        keys = {key: None for row in rows if (key := row.get("cell"))}
    files = {key: folder / "cells" / Path(key).name / "summary.json" for key in keys}
    return {key: read(file) for key, file in files.items() if file.parent.is_dir()}


def _settings(folder: Path, point: str) -> dict[str, Any]:
    """Return the settings of a sweep's point with all its seeds; empty where its cells are not there."""
    path = folder / "sweep.csv"
    seeds: dict[int, None] = {}
    cell = None
    if not names_in(folder, path.name):
        return {}
    with _table(path) as rows:
        for row in rows:
            if _point(row, Row._fields) == point:
                seeds[int(row["seed"])] = None
                cell = cell or row["cell"]
    resolved = folder / "cells" / Path(cell or "").name / "resolved.yaml"
    if cell is None or not resolved.parent.is_dir():
        return {"seeds": list(seeds)}
    settings = look_at(resolved).model_dump(mode="json")
    del settings["seed"]
    return {**settings, "seeds": list(seeds)}
