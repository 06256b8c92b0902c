"""From YAML text to a validated scenario, with every problem at its line.

A scenario is read as a tree of nodes, values that know where they stand (`reading`, `tree`). The schema's
shorthands are expanded in the tree (`shape`), so that an override can descend through them (`overrides`);
then pydantic validates, then `checks`, and what they find is put in words at its place (`wording`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simfl.errors import BadInput, cut, refusal, show
from simfl.errors import Problem as Problem
from simfl.errors import ScenarioError as ScenarioError
from simfl.python_files import are_left_alone, blamed, left_alone
from simfl.scenario import checks
from simfl.scenario.messages import did_you_mean, place, translate
from simfl.scenario.overrides import Unfit, override
from simfl.scenario.schema import Scenario
from simfl.scenario.schema_shape import expand
from simfl.scenario.yaml_reader import dump, parse, read
from simfl.scenario.yaml_tree import SET, Node, nodes, plain


def load(
    source: str | Path | Mapping[str, Any] | Scenario,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Scenario:
    """The scenario of a YAML file (or of a mapping, or an earlier scenario), validated and cross-checked.

    What names a file or folder (`PATHS`) in a scenario's file is relative to that file's folder; in a
    mapping or an override, to the working directory. It is made absolute.

    overrides: values by dotted path, such as `{"population.users": 50, "dropout.rate": 0.2}`; they are
    taken as they are (text from a command line goes through `parse_override` first) and applied in order.
    A path descends through shorthands, a list's entries are numbered from 0, and a key that only another
    kind has as a main value switches to that kind. seed: overrides the scenario's.

    Raises:
        ScenarioError: the file cannot be read, or anything in it is wrong.
    """
    try:
        more = {**(overrides or {}), **({} if seed is None else {"seed": seed})}
        return load_tree(_tree(source), more, _folders(source))
    except RecursionError:
        raise refusal(str(source)[:80], None, "nested too deeply") from None


def look_at(path: Path) -> Scenario:
    """Return the scenario of a run's folder, which may come from anywhere, and execute no file that it names.

    A class of such a file stays an `Outside`: its keys are there, its behaviour is not; so what the parts of
    the scenario ask of each other, which was checked before the run, is not asked again.

    Raises:
        ScenarioError: the file cannot be read, or anything in it is wrong.
    """
    with left_alone():
        return load(path)


def _tree(source: str | Path | Mapping[str, Any] | Scenario) -> Node:
    if isinstance(source, Scenario):
        return nodes(source.model_dump(mode="json"), Node(None, source.name))
    if isinstance(source, Mapping):
        name = source.get("name")
        return nodes(source, Node(None, name if isinstance(name, str) else "scenario"))
    tree = read(Path(source), str(source))
    if base := tree.child("base"):
        raise refusal(
            base.file, base.line, "this is a study and not a scenario; `simfl sweep` runs it", "base"
        )
    return tree


def _folders(source: str | Path | Mapping[str, Any] | Scenario) -> dict[str, Path]:
    """File -> what the relative paths in it are relative to."""
    return {str(source): Path(source).parent} if isinstance(source, str | Path) else {}


PATHS = (
    ("population", "availability", "file"),
    ("learning", "dataset", "file"),
    ("learning", "data", "root"),
)
"""Where a scenario names a file or folder; besides, every `module` names one."""


def anchor(tree: Node, folders: Mapping[str, Path]) -> None:
    """Make the paths absolute, so that the resolved scenario can be loaded from anywhere."""
    _anchor_modules(tree, folders)
    for keys in PATHS:
        node: Node | None = tree
        for key in keys:
            node = node.child(key) if node else None
        if node is not None and isinstance(node.value, str):
            node.value = os.path.abspath(folders.get(node.file, Path()) / node.value)


def _anchor_modules(node: Node, folders: Mapping[str, Path]) -> None:
    inner = node.value.values() if isinstance(node.value, dict) else node.value
    for child in inner if isinstance(node.value, dict | list) else ():
        _anchor_modules(child, folders)
    reference = node.child("module")
    if reference is not None and isinstance(reference.value, str):
        reference.value = os.path.abspath(folders.get(reference.file, Path()) / reference.value)


def load_tree(tree: Node, overrides: Mapping[str, Any], folders: Mapping[str, Path]) -> Scenario:
    """`load` for a tree, which is changed: overrides may be nodes, which then keep their place. folders: what
    the paths of a file are relative to; those of any other, to the working directory."""
    # Before shorthands are written out, which asks a file's class for its fields.
    for part in (tree, *(value for value in overrides.values() if isinstance(value, Node))):
        _anchor_modules(part, folders)
    tree = expand(Scenario, tree)
    problems = []
    for path, value in overrides.items():
        try:
            override(tree, path, value)
        except Unfit as unfit:
            at = value if isinstance(value, Node) else Node(None, SET)
            problems.append(Problem(at.file, at.line, path, str(unfit)))
    anchor(tree, folders)
    try:
        with blamed(BadInput):
            scenario = Scenario.model_validate(plain(tree))
            found = [] if are_left_alone() else checks.check(scenario)
        problems += [place(tree, tuple(path.split(".")), message) for path, message in found]
    except ValidationError as errors:
        problems += translate(errors, tree)
    except BadInput as error:  # a stranger's own methods
        problems.append(Problem(tree.file, None, "", str(error)))
    if problems:
        raise ScenarioError(sorted(problems, key=lambda p: (p.file == SET, p.line or 0)))
    return scenario


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=value` as a dotted path and a value read by the rules of a scenario's file; no value is null.

    Raises:
        ScenarioError: there is no `=`, no path before it, or no YAML after it.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise refusal(SET, None, f"{show(text)} must look like path.to.key=value")
    return key, plain(parse(value, SET, key))


def select_protocols(scenario: Scenario, names: Sequence[str]) -> Scenario:
    """The scenario with only those entries whose name, or whose protocol, is one of `names`.

    Raises:
        ScenarioError: a name that fits no entry, or no names at all.
    """
    entries = scenario.protocols
    known = list(dict.fromkeys([*entries, *(entry.protocol for entry in entries.values())]))
    there = f"; there are: {cut(', '.join(known))}"
    messages = [
        f"no protocol {show(name)}{there}{did_you_mean(name, known)}" for name in names if name not in known
    ]
    if not names:
        messages = [f"no protocol was chosen{there}"]
    if messages:
        raise ScenarioError([Problem(scenario.name, None, "protocols", message) for message in messages])
    chosen = {name: p for name, p in entries.items() if name in names or p.protocol in names}
    return scenario.model_copy(update={"protocols": chosen})


def resolved_yaml(scenario: Scenario) -> str:
    """The scenario with every default filled in, as YAML that `load` reads back to an equal one."""
    return dump(scenario.model_dump(mode="json"))


def json_schema() -> dict[str, Any]:
    """JSON Schema for editors, which accepts the shorthands too."""
    schema: dict[str, Any] = _with_shorthands(Scenario.model_json_schema())
    protocols = schema["properties"]["protocols"]
    names = {"type": "array", "minItems": 1, "items": {"type": "string"}}
    schema["properties"]["protocols"] = {"anyOf": [protocols, names]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _with_shorthands(schema: Any) -> Any:
    """A JSON Schema in which a block told apart by `kind` may be written in its short forms."""
    if isinstance(schema, list):
        return [_with_shorthands(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _with_shorthands(part) for key, part in schema.items() if key != "discriminator"}
    if "discriminator" not in schema:
        return out
    kinds = list(schema["discriminator"]["mapping"])
    short: list[dict[str, Any]] = [{"type": "null"}]
    if schema["discriminator"]["propertyName"] == "kind":
        word = {"type": "string", "pattern": f"^({'|'.join(kinds)})(:.*)?$"}
        entry = {
            "type": "object",
            "properties": {kind: {} for kind in kinds},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        short = [word, entry, *([{"type": "number"}] if "fixed" in kinds else [])]
    long = out.pop("oneOf")
    return {**out, "anyOf": [*long, *short]}
