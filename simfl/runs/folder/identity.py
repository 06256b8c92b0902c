"""The identity of a run: simfl's own code, the resolved scenario, the content of the files that it names."""

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from simfl.config.yaml_tree import Node, naming_files, nodes, plain
from simfl.runs.folder.result import versions
from simfl.scenario.schema import Scenario

# Keys of single files whose content decides the outcome; every `module`, `file` and `..._file` names one.
FILES = (("profile",), ("clock", "dir"))


@cache
def code_version() -> str:
    """Return simfl's version with a digest of its sources and profiles: an edited checkout is another."""
    root = Path(__file__).parents[2]
    digest = sha256()
    carried = root / "shipped"  # in a wheel: scenarios are not the code, and a checkout has them elsewhere
    for path in sorted((*root.rglob("*.py"), *root.rglob("*.yaml"))):
        if path.is_relative_to(carried):
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{versions()['simfl']}+{digest.hexdigest()[:16]}"


def identified(scenario: Scenario, code: str) -> dict[str, Any]:
    """Return code and resolved scenario as plain values, with digests in place of the files that it names."""
    tree = nodes(scenario.model_dump(mode="json"), Node(None, scenario.name))
    for node in naming_files(tree, FILES):
        node.value = _content(node.value)
    return {"code": code, "scenario": plain(tree)}


def _content(name: str) -> str:
    """Return the digest of the file that is meant: itself, the trace of a run's folder, or before `:Name`."""
    file, _, member = name.rpartition(":")
    for path, rest in ((Path(name), ""), (Path(name, "trace.jsonl"), ""), (Path(file), f":{member}")):
        if path.is_file():
            return f"sha256:{sha256(path.read_bytes()).hexdigest()}{rest}"
    return name


def scenario_key(scenario: Scenario, code: str) -> str:
    """Return a hash of a resolved scenario, the files that it names, and the code: 32 hexadecimal digits."""
    text = json.dumps(identified(scenario, code), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:32]


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Return the differences of two trees of plain values, a line each: `rounds: 50 then, 60 now`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            line
            for key in dict.fromkeys((*before, *now))
            for line in differences(before.get(key), now.get(key), f"{path}.{key}".removeprefix("."))
        ]
    return [] if before == now else [f"{path}: {before!s:.80} then, {now!s:.80} now"]
