"""Mutations of a scenario's values: by key path, with what is extreme, of a wrong kind, or nearly right."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from simfl.scenario.schema_shape import Shape
from tests.fuzz.schema import Path, Place, drawn, places
from tests.fuzz.text import Raw, flow

Tree = dict[str, Any]

WHOLE = (
    0, 1, -1, 2, 3, 5, 7, 100, 1000, 10**4, 10**5, 10**6, 10**9, 2**31 - 1, 2**31, 2**32 - 5, 2**32,
    2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**12, 10**30, 10**400,
)  # fmt: skip
NUMBERS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e-300, 4e-10, 5e-10, 4e-7, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12, 1e18,
    1e300, 1.7e308, math.nan, math.inf, -math.inf, 0, 1, -1, 2**31, 2**63, 10**400,
)  # fmt: skip
TEXTS = (
    "", " ", "x", "auto", "none", "nan", "kind:x", "é", "日本", "\U0001f600", "\0", "nul\0byte",
    "\x1b[31mred", "a\nb", "\u2028", "\ud800", "\udcff", "a" * 300, "a" * 10_000, "../../x", "/", ".", "..",
    "a/b", "a.b", "/dev/null", "/dev/full", "/proc/self/mem", "=1+1", "@x", "{0}%s%d", "1e5",
    "yes", "-", "<<", "__class__",
)  # fmt: skip
WRONG = (
    None, True, False, [], {}, [[]], [1], [None], [{}], {"kind": "nope"}, {"kind": None}, {"": 1},
    {"x": {"y": 1}}, "text", 1.5, 1, Raw("0x" + "f" * 5000), Raw("[" * 500 + "]" * 500), Raw("*a"),
    Raw("[" * 2000 + "]" * 2000), Raw("!!python/name:os.system"), Raw("0o17"), Raw("017"), Raw("12:30"),
    Raw("'x"), Raw("1" * 5000),
)  # fmt: skip


def mutate(tree: Tree, rng: Random) -> tuple[Tree, list[str]]:
    """A mutated copy, and in words what was done: most often one thing, sometimes up to four."""
    tree, done = deepcopy(tree), []
    near: Path = ()
    for _ in range(1 + min(3, int(rng.expovariate(1.2)))):
        how = rng.choices(list(WAYS), list(WAYS.values()))[0]
        near, what = how(tree, rng, near)
        done.append(what)
    return tree, done


def override(tree: Tree, rng: Random) -> str:
    """A mutation of one value as text for `--set`."""
    place = _place(tree, rng, ())
    new = rng.choice((extreme(place.value, rng), rng.choice(WRONG), drawn(place.annotation, rng)))
    return f"{_name(place.path)}={flow(new)}"


def extreme(value: Any, rng: Random) -> Any:
    """A value of the same type, far from it or just beside it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float) and rng.random() < 0.4 and abs(value) < 1e300:
        return rng.choice((value - 1, value + 1, value * 2, value / 2, -value, value * 1000, value / 1000))
    if isinstance(value, int):
        return rng.choice(WHOLE + NUMBERS)
    if isinstance(value, float):
        return rng.choice(NUMBERS)
    if isinstance(value, list):
        longer = rng.choice((2, 2, 50, 1000))
        return rng.choice(([], value * longer, value[:-1], [extreme(v, rng) for v in value]))
    return rng.choice(TEXTS)


# --- the ways, each (tree, rng, where the last one was) -> (where, what was done) -----------------
Way = Callable[[Tree, Random, Path], tuple[Path, str]]


def _to_extreme(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    place = _place(tree, rng, near, leaf=True)
    return _set(tree, place.path, extreme(place.value, rng))


def _to_wrong(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    return _set(tree, _place(tree, rng, near).path, rng.choice(WRONG))


def _to_fitting(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    place = _place(tree, rng, near)
    return _set(tree, place.path, drawn(place.annotation, rng))


def _to_kind(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    """Swap the kind of a union."""
    unions = [place for place in places(tree) if place.path and Shape(place.annotation).kinds]
    place = rng.choice(unions or [_place(tree, rng, near)])
    return _set(tree, place.path, drawn(place.annotation, rng))


def _to_word_of_kind(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    """Swap the word and keep the keys of the other kind."""
    unions = [place for place in places(tree) if place.path and Shape(place.annotation).kinds]
    place = rng.choice(unions or [_place(tree, rng, near)])
    shape = Shape(place.annotation)
    word = rng.choice([*shape.kinds, "x"])
    return _set(tree, place.path, {**place.value, shape.tag: word} if isinstance(place.value, dict) else word)


def _to_elsewhere(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    """Copy what stands at another place."""
    return _set(tree, _place(tree, rng, near).path, deepcopy(_place(tree, rng, ()).value))


def _added(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    """Add a key that is not there, with a fitting or an extreme value."""
    place = rng.choice([place for place in places(tree) if place.missing])
    key = rng.choice(list(place.missing))
    value = drawn(place.missing[key], rng)
    if place.value is None:
        _set(tree, place.path, {})
    return _set(tree, (*place.path, key), value if rng.random() < 0.6 else extreme(value, rng))


def _unknown(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    """Add a key that nobody knows, or misspell one."""
    path = _place(tree, rng, near).path
    block = get(tree, path[:-1])
    if not isinstance(block, dict):
        return _deleted(tree, rng, path)
    if rng.random() < 0.5:
        return _set(tree, (*path[:-1], rng.choice(TEXTS)), 1)
    key = str(path[-1])
    at = rng.randrange(len(key) + 1)
    new = rng.choice((key[:at] + key[at + 1 :], key[:at] + "x" + key[at:], key.upper(), key + "_s"))
    block[new] = block.pop(path[-1])
    return (*path[:-1], new), f"{_name(path)} renamed to {new}"


def _deleted(tree: Tree, rng: Random, near: Path) -> tuple[Path, str]:
    path = _place(tree, rng, near).path
    del get(tree, path[:-1])[path[-1]]
    return path[:-1], f"{_name(path)} deleted"


WAYS: dict[Way, float] = {
    _to_extreme: 6, _to_wrong: 2, _to_fitting: 2, _to_kind: 1.5, _to_word_of_kind: 0.5, _to_elsewhere: 1,
    _added: 2, _unknown: 0.7, _deleted: 1,
}  # fmt: skip
"""With their weights."""


# --- places ---------------------------------------------------------------------------------------
def _place(tree: Tree, rng: Random, near: Path, leaf: bool = False) -> Place:
    """Any place but the root; every other time one beside the last, as some faults need two values."""
    listed = [place for place in places(tree) if place.path] or list(places({"seed": 1}))[1:]
    beside = [place for place in listed if near and place.path[:-1] == near[:-1]]
    if beside and rng.random() < 0.5:
        return rng.choice(beside)
    leaves = [place for place in listed if not isinstance(place.value, dict)]
    return rng.choice(leaves if leaf and leaves else listed)


def get(tree: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        tree = tree[key]
    return tree


def _set(tree: Tree, path: Path, value: Any) -> tuple[Path, str]:
    get(tree, path[:-1])[path[-1]] = value
    return path, f"{_name(path)} = {flow(value)[:60]}"


def _name(path: Path) -> str:
    return ".".join(map(str, path))
