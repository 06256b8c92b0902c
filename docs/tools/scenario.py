"""The reference of scenarios, `docs/scenario.md`: every key that the schema has, as Markdown.

Nothing is said here that the schema does not say: blocks and unions have the names that they have there,
sentences are their docstrings, and shorthands are found by trying them.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from docs.tools.key_examples import example
from simfl.config import blocks
from simfl.config.blocks import UnionName
from simfl.config.yaml_tree import dump
from simfl.scenario import schema, world
from simfl.scenario.schema_shape import Shape, hints

HEAD = """# Scenarios

Every key of a scenario's file; `scenarios/tutorial.yaml` is a short one. Made from the schema:
`python -m docs.tools.scenario > docs/scenario.md`.

A bare word stands for its kind (`availability: always`), and where a short form is named, a mapping gives
kind and main value by the kind's word (`detect: {disconnect: 0.5}`, `dropout: {rate: 0.2, at: shares}`).

Units are in the names; rates of links are in Mbit/s, `_s` is seconds. A number may also be written with a
unit: durations in `ns`, `us`, `ms`, `s`, `min`, `h` and `d` (`upload: 5s`, `on_s: {exponential: 10 min}`),
rates of links in `kbit/s`, `Mbit/s`, `Gbit/s` or `MB/s` (`uplink_mbps: 1.5 Gbit/s`), fractions in per cent
(`rate: 20%`), memory in `MB`, `GB` or `GiB`, a battery's energy in `J`, `kJ` or `Wh`. A resolved scenario has
plain numbers. Text is read by YAML 1.2: `1e-3` is a number, `12:30` is text, and a number with a leading zero
is refused.

`--set population.users=50` overrides any key by its path. `simfl check SCENARIO` prints a scenario with every
default filled in, and says what is wrong with one.

What is **needed** has no default; where a default is blank, the key may be left out; "its own" are the
defaults of the block's keys. Beyond the bounds here, values are held to each other (`privacy.T` below
`privacy.U`, say): the message names them. Numbers that are drawn (slowdowns, sessions, jitter, the noise of
training) are held within 1e-9 and 1e9, as those that are given are. Names (`name`, and those of `protocols`)
are 1 to 80 letters a-z and A-Z, digits, `-`, `_` and `.`, the first no dot; where the name is the file's, `-`
stands in it for any other character.
"""

WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def markdown() -> str:
    """Return the whole page: a section for each block and union, in the order in which they are met."""
    aliases = vars(blocks) | vars(world) | vars(schema)
    names = {id(value): name for name, value in aliases.items() if get_origin(value) is Annotated}
    sections: dict[str, list[str]] = {}
    described: dict[Any, str] = {}
    todo: list[tuple[str, Any]] = [("Scenario", schema.Scenario)]
    while todo:
        name, annotation = todo.pop(0)
        if name not in sections:
            page = _Section(names, described, name)
            sections[name] = [f"## {name}", *page.of(annotation)]
            todo = page.met + todo
    return "\n\n".join([HEAD.rstrip(), *(part for section in sections.values() for part in section)]) + "\n"


class _Section:
    """A block, or the kinds of a union, with the blocks and unions that it leads to in `met`.

    described: kind -> the section that has it, for those after it.
    """

    def __init__(self, names: dict[int, str], described: dict[Any, str], name: str) -> None:
        self.names, self.described, self.name = names, described, name
        self.met: list[tuple[str, Any]] = []

    def of(self, annotation: Any) -> Iterator[str]:
        shape = Shape(annotation)
        elsewhere: dict[str, list[str]] = {}
        if shape.model:
            yield from self._block(shape.model, None)
        for model in dict.fromkeys(shape.kinds.values()):
            words = [word for word, other in shape.kinds.items() if other is model]
            if (there := self.described.setdefault(model, self.name)) != self.name:
                elsewhere.setdefault(there, []).extend(words)
                continue
            short = f" (short: `{main}`)" if (main := _short(shape, words[0])) else ""
            yield f"**{_code(words)}**{short}"
            yield from self._block(model, shape.tag)
        for there, words in elsewhere.items():
            yield f"{_code(words)}: as of [{there}](#{there.lower()})."

    def _block(self, model: type[BaseModel], tag: str | None) -> Iterator[str]:
        parts = (" ".join(part.split()) for part in (model.__doc__ or "").split("\n\n"))
        yield from (part for part in parts if not part.startswith(">>>"))  # examples are for readers of code
        assert issubclass(model, blocks.Block)
        descriptions = model.descriptions()
        rows = ["| key | type | default | bound | | example |", "|---|---|---|---|---|---|"]
        for key, info in model.model_fields.items():
            if key != tag:
                kind = hints(model)[key]
                cells = f"`{key}`", self._type(kind), _default(info), _bound(kind), descriptions.get(key, "")
                rows.append(f"| {' | '.join(cells)} | `{example(model, key)}` |")
        if len(rows) > 2:
            yield "\n".join(rows)

    def _type(self, annotation: Any) -> str:
        extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        own = next((extra.name for extra in extras if isinstance(extra, UnionName)), None)
        name = own or self.names.get(id(annotation))
        shape = Shape(annotation)
        if name and shape.kinds and not shape.mixed:
            return self._link(name, annotation)
        outer, parts = get_origin(annotation), get_args(annotation)
        if outer is Annotated:
            listed = (
                any(isinstance(extra, BeforeValidator) for extra in extras) and get_origin(parts[0]) is dict
            )
            return "list of names, or " * listed + self._type(parts[0])
        if outer is Literal:
            return " or ".join(f"`{word}`" for word in parts)
        if outer in (Union, UnionType):
            return " or ".join(self._type(part) for part in parts if part is not NoneType)
        if outer is tuple:
            inner = [self._type(part) for part in parts if part is not ...]
            return f"list: {inner[0]}" if ... in parts else f"[{', '.join(inner)}]"
        if outer is dict:
            return f"name: {self._type(parts[1])}"
        if shape.model:
            return self._link(shape.model.__name__, annotation)
        return WORDS[annotation]

    def _link(self, name: str, annotation: Any) -> str:
        self.met.append((name, annotation))
        return f"[{name}](#{name.lower()})"


def _short(shape: Shape, word: str) -> str:
    """Return the short form of a kind with its main value, if it has one."""
    for write_out in shape.before:
        long = write_out({word: ...})
        if "kind" in long:
            main = next(key for key, value in long.items() if value is ...)
            of_number = [block for other in shape.before if isinstance(block := other(1.0), dict)]
            number = any(word == block["kind"] for block in of_number)
            return f"{word}: {main.upper()}" + (f"` or `{main.upper()}" if number else "")
    return ""


def _default(info: FieldInfo) -> str:
    value = info.get_default()
    if info.is_required():
        return "**needed**"
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return _code([value.kind]) if hasattr(value, "kind") else "its own"
    return _code([str([*value]) if isinstance(value, tuple) else dump(value).removesuffix("...\n").strip()])


def _bound(annotation: Any) -> str:
    """Return pydantic's bounds of a number or of a list's length; those of a list's entries come first."""
    names = (*BOUNDS, "min_length", "max_length")
    found = ((name, getattr(part, name, None)) for part in _parts(annotation) for name in names)
    bounds: dict[str, Any] = {name: bound for name, bound in found if bound is not None}
    for strict, loose in (("lt", "le"), ("gt", "ge")):
        if strict in bounds and bounds.get(loose) == bounds[strict]:
            del bounds[loose]
    least, most = bounds.get("min_length"), bounds.get("max_length")
    entries = [f"{least} to {most} entries" if most else f"{least} entry or more"] if least else []
    numbers = [f"{sign} {_power(bounds[name])}" for name, sign in BOUNDS.items() if name in bounds]
    return ", ".join(numbers + entries)


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the constraints within an annotation, but not those of the blocks that it names."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        yield from _parts(inner)
        yield from (part for extra in extras if isinstance(extra, FieldInfo) for part in extra.metadata)
    elif get_origin(annotation) in (Union, UnionType) or ... in get_args(annotation):  # no pair of numbers
        for part in get_args(annotation):
            yield from _parts(part)


def _power(bound: float) -> str:
    exact = int(bound).bit_length() - 1
    return f"2^{exact}" if bound > 1e6 and bound == 2**exact else f"{bound:g}"


def _code(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    print(markdown(), end="")
