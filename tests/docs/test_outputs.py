"""docs/outputs.md and docs/commands.md are what the code says, and real runs' files have nothing else."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from pydantic import BaseModel
from typer.core import TyperGroup
from typer.main import get_command

import simfl
from docs.tools import commands, outputs
from simfl.cli import app
from simfl.config.blocks import descriptions
from simfl.runs.results.summary import Summary
from simfl.trace.rows import ROWS, SHARED
from tests.docs.pages import ROOT, Command
from tests.docs.shell import Shell

PAGE = ROOT / "docs" / "outputs.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHORT = {"rounds": 1, "payload": "shadow"}
RUNS: dict[str, dict[str, Any]] = {
    "mixed_links": SHORT,
    "reconstruction": {"rounds": 2},
    "async_buffer": {"rounds": 2, "clock": "modelled", "payload": "shadow"},
    "check_in": {"rounds": 1, "payload": "shadow"},
    "dp": {"rounds": 1, "protocols": ["secagg"]},
    "tutorial": {"rounds": 1, "targets.accuracy": 0.1, "clock": "measured", "learning.epochs": 1},
}


def section(file: str) -> set[str]:
    """The names that the tables of a file's section have in their first column."""
    text = TEXT.partition(f"\n## {file}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", text, re.M))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = [tmp_path_factory.mktemp(name) for name in RUNS]
    for folder, (name, given) in zip(out, RUNS.items(), strict=True):
        simfl.run(ROOT / "scenarios" / f"{name}.yaml", given, out=folder)
    return out


def keys(model: type[BaseModel], value: dict[str, Any]) -> Iterator[str]:
    """The keys of a written model and of those within it; names of entries, reasons, phases are no keys."""
    hints = get_type_hints(model)
    for key, inner in value.items():
        yield key
        field = next(name for name, info in model.model_fields.items() if key in (name, info.alias))
        models = [found for found in outputs._inner(hints[field]) if found is not model]
        for part in parts(inner) if models else ():
            yield from keys(models[0], part)


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """The mappings of a value that are models: itself, a list's, or those of a mapping by name."""
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        by_name = value and all(isinstance(inner, dict) for inner in value.values())
        yield from value.values() if by_name and "users" not in value else [value]


def test_it_is_what_the_code_says() -> None:
    assert outputs.markdown() == TEXT


def test_commands_are_what_the_code_says() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert commands.markdown() == page
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        if command.hidden:
            continue
        assert f"\n## simfl {name}" in page
        section = page.partition(f"\n## simfl {name}\n")[2].partition("\n## ")[0]
        options = [p.opts[0] for p in command.params if p.opts[0].startswith("--") and not p.hidden]
        assert [option for option in options if f"`{option}" not in section] == [], name


def test_every_key_has_a_meaning() -> None:
    models, todo = set(), [Summary]
    while todo:
        model = todo.pop()
        models.add(model)
        assert [key for key, text in descriptions(model).items() if not text and key != "kept"] == [], model
        todo += [m for h in get_type_hints(model).values() for m in outputs._inner(h) if m not in models]
    assert len(models) > 10
    for name, row in ROWS.items():
        assert [key for key, text in descriptions(row).items() if not (text or key in SHARED)] == [], name


@pytest.mark.ci
def test_it_has_every_key_of_a_summary(folders: list[Path]) -> None:
    known, seen = section("summary.json"), set()
    for folder in folders:
        seen |= set(keys(Summary, json.loads((folder / "summary.json").read_text(encoding="utf-8"))))
    assert seen <= known
    # what these runs lack: means of runs that failed, a wrapped sum, and the like
    assert len(known - seen) <= 3, known - seen


@pytest.mark.ci
def test_it_has_every_field_of_a_trace(folders: list[Path]) -> None:
    known = section("trace.jsonl")
    heads = set(re.findall(r"^### (\w+)$", TEXT.partition("## trace.jsonl")[2].partition("\n## ")[0], re.M))
    for folder in folders:
        rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text("utf-8").splitlines()]
        assert {row["row"] for row in rows} <= heads | {"protocol"}
        assert {key for row in rows for key in row} <= known | {"row", "timed_by"}


@pytest.mark.ci
def test_it_has_every_column(folders: list[Path]) -> None:
    for folder in folders:
        for path in folder.glob("*.csv"):
            with path.open(encoding="utf-8") as file:
                assert set(next(csv.reader(file))) == section(path.name)
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert set(json.loads(lines[0])) == section("metrics.jsonl")
        for path in folder.glob("updates-*.npz"):
            with np.load(path) as arrays:
                assert set(arrays) == section("updates-NAME.npz")
    written = {path.name for folder in folders for path in folder.iterdir()}
    assert {"energy.csv", "updates-random.npz"} & written
    named = set(re.findall(r"^## (\S+)$", TEXT, re.M))
    assert {re.sub(r"updates-.*\.npz", "updates-NAME.npz", name) for name in written} <= named


@pytest.mark.ci
def test_it_has_every_column_of_a_sweep(shell: Shell) -> None:
    study = "base: scenarios/tutorial.yaml\nset: {payload: shadow, rounds: 1}\n"
    study += "grid: {dropout.rate: [0.0, 0.1]}\nseeds: 2\n"
    (shell.folder / "study.yaml").write_text(study, encoding="utf-8")
    shell.run(Command("simfl sweep study.yaml --jobs 1"))
    for name in ("sweep.csv", "means.csv", "failures.csv"):
        with (shell.folder / "sweeps" / "study" / name).open(encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        assert set(head) - {"dropout.rate"} <= section(name)
        if name == "sweep.csv":
            assert {row[head.index("measure")] for row in rows} <= section(name)
