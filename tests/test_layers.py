"""Imports point down only; each heavy library has one home; some things are used nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "simfl").rglob("*.py"))

MAY_IMPORT = {
    "errors": (),
    "streams": (),
    "crypto": (),
    "trace": ("errors",),
    "metrics": ("trace",),
    "selection": (),
    "privacy": ("errors", "selection"),
    "protocols": ("errors", "crypto", "trace", "streams"),
    "profiles": ("errors", "protocols"),
    "learning": (),
    "engine": (
        "errors",
        "streams",
        "crypto",
        "trace",
        "protocols",
        "learning",
        "selection",
        "scenario.schema",
    ),
    "scenario": ("errors", "streams", "crypto", "protocols", "learning", "selection", "profiles"),
    "scenario.build": ("trace", "engine"),
    "scenario.memory": ("engine",),
    "reports": ("errors", "trace", "metrics", "privacy", "scenario.schema", "simulation"),
    "reports.parquet": ("result",),
    "reports.perfetto": ("protocols.registry",),
    "reports.figures": ("result",),
    "reports.sweep": ("studies.sweeps",),
    "reports.figures_papers": ("studies.papers",),
    "result": ("trace", "metrics", "engine.virtual", "privacy", "scenario", "selection"),
    "simulation": ("errors", "trace", "engine", "protocols", "scenario", "learning", "result"),
    "studies": (
        "errors",
        "trace",
        "crypto",
        "streams",
        "engine",
        "protocols",
        "learning",
        "scenario",
        "profiles",
        "result",
        "simulation",
        "metrics",
        "privacy",
        "selection",
    ),
    "catalog": ("crypto", "profiles", "protocols", "learning"),
    "cli": (
        "catalog",
        "errors",
        "result",
        "simulation",
        "scenario",
        "studies",
        "reports",
        "privacy",
        "profiles",
        "protocols",
        "learning",
    ),
}
"""Part of simfl -> the parts, besides itself, that it may import; a module may have more than its package.

`simfl` itself (the public API, which imports on first use) and `simfl.__main__` stand above all.
"""

HOMES = {
    "simpy": ("engine",),
    "torch": ("learning", "crypto"),
    "sklearn": ("learning",),
    "cryptography": ("crypto",),
    "galois": ("crypto",),
    "numba": ("crypto",),
    "typer": ("cli", "__main__"),
    "rich": ("reports", "cli"),
    "matplotlib": ("reports",),
    "jinja2": ("reports",),
    "markupsafe": ("reports",),
    "yaml": ("scenario", "profiles"),
    "pydantic": ("scenario", "profiles", "learning", "studies"),
    "asyncio": ("engine", "simulation", "studies", "cli"),
    "joblib": ("studies",),
    "distributed": ("studies",),
    "ray": ("studies",),
    "filelock": ("studies",),
    "pyarrow": ("reports",),
    "networkx": ("protocols",),
    "scipy": ("protocols", "selection", "privacy", "learning", "studies"),
    "concurrent": ("engine",),
    "threadpoolctl": ("learning",),
    "PIL": ("learning",),
}
"""Library -> the parts of simfl that may import it."""

FORBIDDEN = {"pickle", "marshal", "shelve", "random", "dill"}


def name_of(path: Path) -> str:
    """simfl/engine/pool.py -> engine.pool."""
    parts = path.relative_to(ROOT / "simfl").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever it does so, except for type checkers only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def allowed(name: str) -> tuple[str, ...]:
    """What a module may import of simfl: its own package, its package's and its own list."""
    part = name.split(".")[0]
    return (part, *MAY_IMPORT[part], *MAY_IMPORT.get(name, ()))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    name = name_of(path)
    if name in ("", "__main__"):
        return
    for imported in imports(path):
        if imported.startswith("simfl."):
            assert inside(imported.removeprefix("simfl."), allowed(name)), f"{name} imports {imported}"
        elif imported == "simfl":
            assert name == "result", f"{name} imports simfl itself"  # for its version


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_library_has_its_home(path: Path) -> None:
    for imported in imports(path):
        library = imported.split(".")[0]
        assert library not in FORBIDDEN, f"{path}: {library}"
        if library in HOMES:
            assert inside(name_of(path), HOMES[library]), f"{name_of(path)} imports {library}"


def test_the_table_itself_points_down() -> None:
    """No part may import one that may import it."""
    above: dict[str, set[str]] = {}
    for part, below in MAY_IMPORT.items():
        if part != "scenario.build":  # the composition root wires what stands above its package
            above[part] = {b for b in below if "." not in b}
    reached = {part: set(below) for part, below in above.items()}
    for _ in reached:
        for part in reached:
            reached[part] |= {far for near in reached[part] for far in reached[near]}
    assert not [part for part in reached if part in reached[part]]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_global_randomness_and_no_unsafe_loading(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval", "exec"), path
            assert called not in ("torch.manual_seed", "torch.seed", "torch.load"), path
            if called.startswith(("np.random.", "numpy.random.")):
                kinds = ("Generator", "Philox")  # RandomState(seed): scikit-learn's split, made again
                kinds += ("RandomState",) if name_of(path) == "learning.data.bundled" else ()
                assert called.split(".")[-1] in kinds, f"{path}:{node.lineno}: {called}"


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p).split(".")[0] == "protocols"], ids=name_of)
def test_machines_have_no_clock_and_no_socket(path: Path) -> None:
    for imported in imports(path):
        library = imported.split(".")[0]
        assert library not in ("simpy", "torch", "asyncio", "socket", "secrets", "threading")
        assert library != "time" or name_of(path) == "protocols.ops", path  # the ledger of CPU time
