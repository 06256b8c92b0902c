"""A study file: a base scenario, and settings that are varied over it.

    base: ../sync_breakdown.yaml         # a scenario's path from this file, or a scenario written out here
    set: {payload: shadow}               # holds in every cell
    cells:                               # values that go together, if there are such
      - {population.users: 25, privacy: {T: 2, D: 12}}
      - {population.users: 50, privacy: {T: 5, D: 25}}
    grid: {dropout.rate: [0.1, 0.3]}     # each with each, and with each of `cells`
    seeds: 5                             # five from the base's on, or a list

Keys are dotted, as for `--set`, and are applied in the order `set`, `cells`, `grid`. A list of names for
`protocols` selects these entries of the base.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from simfl.config.blocks import Block, Name
from simfl.config.yaml_tree import Node, plain, read
from simfl.errors import Problem, ScenarioError, cut, did_you_mean, refusal, show
from simfl.scenario.load import anchor, load_tree, read_tree
from simfl.scenario.messages import place, translate
from simfl.scenario.schema import Scenario
from simfl.scenario.schema_shape import Shape, expand


def _base(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError(f"must be a scenario's path or a scenario, not {show(value)}")
    return value


def _seeds(value: Any) -> Any:
    listed = value if isinstance(value, list) else [value]
    # A list holds seeds, bounded as `blocks.Seed`; a number is a count, bounded as `blocks.Count`.
    bound = 2**63 if isinstance(value, list) else 2**31
    # `type` and not `isinstance`: True is an integer too.
    valid = [number for number in listed if type(number) is int and 0 <= number < bound]
    if len(set(valid)) < len(listed) or value in (0, []):
        shown = f"[{cut(', '.join(map(show, listed)))}]" if isinstance(value, list) else show(value)
        raise ValueError(f"must be a count from 1 to 2^31 - 1, or a list of seeds, each once, not {shown}")
    return value


Values = Annotated[tuple[Any, ...], Field(min_length=1)]


class SweepFile(Block):
    """The keys of a study file; `SweepFile.base` and the values of settings are checked later, as
    scenarios."""

    name: Name
    """Heads tables and names the folder; the file's name unless given."""
    base: Annotated[Any, AfterValidator(_base)] = None
    """A scenario's path from this file, or a scenario."""
    set: dict[str, Any] = {}
    """Settings of every cell, by dotted key."""
    cells: tuple[Annotated[dict[str, Any], Field(min_length=1)], ...] = ()
    """Settings that go together."""
    grid: dict[str, Values] = {}
    """Values of an axis, by dotted key."""
    seeds: Annotated[Any, AfterValidator(_seeds)] = 1
    """A number of seeds, from the base's, or a list."""


@dataclass(frozen=True)
class Setting:
    """A value for a key of the scenario."""

    part: str
    """Part of the study that gives it, such as `cells.0`."""
    key: str
    """Dotted key."""
    node: Node
    """The value with its line."""

    @property
    def value(self) -> Any:
        """The plain value."""
        return plain(self.node)


Settings = tuple[Setting, ...]


@dataclass(frozen=True)
class Study:
    """A study as read.

    Attributes:
        name: Name of the study.
        file: Its file, for messages.
        base: The base scenario, with shorthands written out.
        folders: Folder of the relative paths in each file.
        common: Settings of every cell.
        cells: Settings that go together; at least one tuple, which may be empty.
        grid: An axis each, whose settings have one key.
        seeds: Seeds of every point.
    """

    name: str
    file: str
    base: Node
    folders: Mapping[str, Path]
    common: Settings
    cells: tuple[Settings, ...]
    grid: tuple[Settings, ...]
    seeds: Sequence[int]

    def resolve(self, settings: Settings, seed: int) -> Scenario:
        """Return the scenario with these settings; a ScenarioError has each problem at its setting."""
        # Copies, as overrides and anchors change the tree, and the next cell starts from the same base.
        settings, tree = (*self.common, *settings), deepcopy(self.base)
        overrides: dict[str, Any] = {s.key: _subset(tree, s) or deepcopy(s.node) for s in settings}
        try:
            # The seed last, so that it holds in every cell; `_misplaced` refuses it among the settings.
            return load_tree(tree, self.folders, {**overrides, "seed": seed})
        except ScenarioError as error:
            raise ScenarioError([self._placed(p, settings) for p in error.problems]) from None

    def _placed(self, problem: Problem, settings: Settings) -> Problem:
        if problem.file != self.file:
            return problem
        # The last setting of a key is the one that holds.
        for s in reversed(settings):
            # With the dot: a key that merely begins with the same letters is another one.
            if f"{problem.path}.".startswith(f"{s.key}."):
                return replace(problem, path=f"{s.part}.{problem.path}")
        return replace(problem, path=f"base.{problem.path}")


def load_study(source: str | Path | Mapping[str, Any]) -> Study:
    """Read a study and its base. `Study.resolve` checks the scenarios.

    Args:
        source: A YAML file, a shipped study's name, or a mapping of the same shape, whose base is a path from
            the working directory.

    Raises:
        ScenarioError: The study or its base is wrong.
    """
    tree, _ = read_tree({"name": "study", **source} if isinstance(source, Mapping) else source, "study")
    file = tree.file
    try:
        study = SweepFile.model_validate(plain(tree))
    except ValidationError as errors:
        raise ScenarioError(translate(errors, tree, SweepFile)) from None
    if isinstance(study.base, str):
        base_file = os.path.normpath(Path(file).parent / study.base)
        base = read(Path(base_file), base_file)
    else:
        base = tree.value["base"]
        base.value.setdefault("name", Node(study.name, file))
    folders = {name: Path(name).parent for name in (file, base.file)}
    # Before shorthands are written out, which executes the file of a `module`.
    anchor(base, folders)
    base = expand(Shape(Scenario), base)
    parts = {key: child.value for key, child in tree.value.items() if child.value}
    common = _settings("set", parts.get("set", {}))
    cells = tuple(_settings(f"cells.{i}", cell.value) for i, cell in enumerate(parts.get("cells", ())))
    axes = parts.get("grid", {}).items()
    grid = tuple(tuple(Setting("grid", key, value) for value in axis.value) for key, axis in axes)
    problems = list(_misplaced(tree, common, (*chain(*cells),), tuple(axis[0] for axis in grid)))
    if problems:
        raise ScenarioError(problems)
    # One empty cell, so that the product with the axes is that of the axes alone.
    return Study(study.name, file, base, folders, common, cells or ((),), grid, _numbers(study, tree, base))


def _settings(part: str, mapping: dict[str, Node]) -> Settings:
    return tuple(Setting(part, key, node) for key, node in mapping.items())


def _numbers(study: SweepFile, tree: Node, base: Node) -> Sequence[int]:
    if isinstance(study.seeds, list):
        return study.seeds
    first = base.child("seed")
    message = "a count starts at the base's seed, which it does not give: list the seeds"
    if first is not None and type(first.value) is int:
        # Seeds are below 2^63, and a range ends before its last number.
        if first.value + study.seeds <= 2**63:
            return range(first.value, first.value + study.seeds)
        message = f"{study.seeds} seeds from {show(first.value)} on reach beyond 2^63"
    raise ScenarioError([place(tree, ("seeds",), message)])


def _misplaced(tree: Node, common: Settings, varied: Settings, axes: Settings) -> Iterator[Problem]:
    for s in (*common, *varied, *axes):
        path = (*s.part.split("."), s.key)
        if s.key == "seed":
            yield place(tree, path, "must not be set here: list it in `seeds`")
        if s.part == "grid" and s.key in {other.key for other in varied}:
            yield place(tree, path, "is in `cells` too: give its values in one of them")


def _subset(tree: Node, setting: Setting) -> Node | None:
    """Return the base's entries that a list of names under `protocols` selects, by entry or by protocol."""
    names = setting.value
    entries = tree.value["protocols"].value if "protocols" in tree.value else None
    if setting.key != "protocols" or not isinstance(names, list) or not isinstance(entries, dict):
        return None
    kinds = {name: plain(entry.child("protocol") or entry) for name, entry in entries.items()}
    choices = list(dict.fromkeys([*kinds, *kinds.values()]))
    for i, name in enumerate(names):
        if name not in choices:
            node = setting.node.child(i) or setting.node
            entries = f"the base has {cut(', '.join(map(str, choices)))}{did_you_mean(name, choices)}"
            message = f"no protocol {show(name)}; {entries}"
            raise refusal(node.file, node.line, message, f"{setting.part}.protocols")
    # In the base's order, whatever the order of the list: every cell reports its protocols alike.
    chosen = {name: entries[name] for name in entries if name in names or kinds[name] in names}
    return Node(chosen, setting.node.file, setting.node.line)
