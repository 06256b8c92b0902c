"""Mutants by number: a seed and a number make the same file on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from simfl.config.yaml_tree import parse, plain
from simfl.scenario.load import load
from simfl.scenario.study import load_study
from tests.fuzz import lines, plausible, values
from tests.fuzz.small import small
from tests.fuzz.text import dump

ROOT = Path(__file__).parents[2]
SEEDS = Path(__file__).parent / "seeds"
FILES = sorted(path for path in SEEDS.iterdir() if path.suffix != ".yaml")
"""What scenarios may name: traces of presence and of links, and users' own numbers."""

OWN = sorted(path.stem for path in SEEDS.glob("*.yaml"))
"""Seeds that are for this alone: tiny, and between them with each block."""

KINDS = {"plausible": 0.35, "values": 0.4, "override": 0.08, "text": 0.17}
"""How mutants are made, and how often."""


@dataclass(frozen=True)
class Mutant:
    """The bytes of a scenario's file and the values of `--set`; `what` is what was done to which seed."""

    data: bytes
    sets: tuple[str, ...]
    what: str


def mutant(seed: int, number: int) -> Mutant:
    """The mutant of this number."""
    rng = Random(f"{seed} {number}")
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "plausible":
        tree = plausible.scenario(rng)
        return Mutant(dump(tree).encode(), (), "plausible")
    if kind == "text":
        name = rng.choice(list(texts()))
        data, done = lines.mutate(texts()[name], rng)
        return Mutant(data, (), f"{name}: {', '.join(done)}")
    name = rng.choice([*trees(), *2 * OWN, *5 * ["plausible"]])
    tree = plausible.scenario(rng) if name == "plausible" else trees()[name]
    if kind == "override":
        given = values.override(tree, rng)
        return Mutant(dump(tree).encode(), (given,), f"{name}: --set {given[:80]}")
    tree, done = values.mutate(tree, rng)
    return Mutant(dump(tree).encode(), (), f"{name}: {', '.join(done)}")


def shipped() -> list[Path]:
    """Scenarios and studies; a fleet is neither."""
    return sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if path.parent.name != "fleets")


@cache
def texts() -> dict[str, bytes]:
    """The scenarios that are shipped and those for this, as they stand."""
    files = [*shipped(), *sorted(SEEDS.glob("*.yaml"))]
    data = {path.stem: path.read_bytes() for path in files}
    return {name: text for name, text in data.items() if b"\nbase:" not in text}


@cache
def trees() -> dict[str, dict[str, Any]]:
    """The same as plain values: those for this as they stand, shipped ones made small; studies, too."""
    made: dict[str, dict[str, Any]] = {}
    for path in sorted(SEEDS.glob("*.yaml")):
        made[path.stem] = plain(parse(path.read_text(), path.name))
    for path in shipped():
        if b"\nbase:" in path.read_bytes():
            study = load_study(path)
            cell = (*study.cells[0], *(axis[0] for axis in study.grid))
            made[path.stem] = small(study.resolve(cell, study.seeds[0]))
        else:
            made[path.stem] = small(load(path))
    return made
