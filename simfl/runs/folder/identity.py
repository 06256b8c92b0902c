"""The identity of a run: simfl's code, the resolved scenario, and the content of the files that it names."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from simfl.config.yaml_tree import Node, naming_files, nodes, plain
from simfl.runs.folder.result import versions
from simfl.scenario.schema import Scenario

FILES = (("profile",), ("clock", "dir"))
"""Further keys that name a file whose content decides the outcome, beside `module`, `file` and `..._file`."""


@cache
def code_version() -> str:
    """Return simfl's version and a digest of its sources and profiles: an edited checkout differs."""
    root = Path(__file__).parents[2]
    digest = sha256()
    # A wheel carries the scenarios in this folder. They are not code, and a checkout has them elsewhere: both
    # must have one version (`tests/packaging/test_wheel.py`).
    carried = root / "shipped"
    # Sorted, as the order of a folder's entries depends on the file system.
    for path in sorted((*root.rglob("*.py"), *root.rglob("*.yaml"))):
        if path.is_relative_to(carried):
            continue
        content = path.read_bytes()
        # Name and length delimit a file: no two sets of files have the same digested bytes.
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{versions()['simfl']}+{digest.hexdigest()[:16]}"


def identified(scenario: Scenario, code: str) -> dict[str, Any]:
    """Return code and resolved scenario as plain values, with digests instead of the names of files."""
    tree = nodes(scenario.model_dump(mode="json"), Node(None, scenario.name))
    # The content decides, and not the name: a moved file is the same run, an edited one is another
    # (`test_a_file_that_the_scenario_names_counts_by_its_content`).
    for node in naming_files(tree, FILES):
        node.value = _content(node.value)
    return {"code": code, "scenario": plain(tree)}


def _content(name: str) -> str:
    """Return the digest of a named file; the name itself if there is no such file.

    It is the file of that name, the trace in a run's folder of that name, or the file before `:Name`.
    """
    # A name with a colon may also be a file's, so whole names are tried first.
    file, _, member = name.rpartition(":")
    for path, suffix in ((Path(name), ""), (Path(name, "trace.jsonl"), ""), (Path(file), f":{member}")):
        if path.is_file():
            return f"sha256:{sha256(path.read_bytes()).hexdigest()}{suffix}"
    return name


def scenario_key(scenario: Scenario, code: str) -> str:
    """Return a hash of a resolved scenario, the files that it names, and the code: 32 hexadecimal digits."""
    # Sorted keys and fixed separators: the text must not depend on the order in which a scenario was written.
    text = json.dumps(identified(scenario, code), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:32]


def differences(before: Any, now: Any) -> list[str]:
    """Return the differences of two trees of plain values, a line each: `rounds: 50 then, 60 now`."""
    values = differing([before, now])
    return [f"{key}: {old!s:.80} then, {new!s:.80} now" for key, (old, new) in values.items()]


def differing(trees: Sequence[Any], path: str = "") -> dict[str, list[Any]]:
    """Return the values that differ between trees of plain values, by dotted key.

    >>> differing([{"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}])
    {'a.b': [1, 3]}
    """
    # A mapping on one side and a value on the other differ as a whole.
    if not all(isinstance(tree, Mapping) for tree in trees):
        return {} if all(tree == trees[0] for tree in trees) else {path: list(trees)}
    differences: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for tree in trees for key in tree):
        differences |= differing([tree.get(key) for tree in trees], f"{path}.{key}".removeprefix("."))
    return differences
