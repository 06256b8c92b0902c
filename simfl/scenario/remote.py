"""Scenarios that another machine sent, read as data: they must not open or execute anything here.

Invariant: no file is opened or executed before the check has passed. The scenario is validated without the
files that it names, and then its blocks are checked by their classes and fields. Shorthands are written out
by then, so all spellings of a block are checked alike. A free text is refused unless its type is marked as
harmless, and a class of an installed package unless it declares `opens`: a new kind cannot forget it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from simfl.config.blocks import Block
from simfl.config.python_files import left_alone
from simfl.config.texts import NamesFile, NamesNothing
from simfl.config.yaml_tree import parse, plain
from simfl.errors import BadInput, cut
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.scenario.schema_shape import hints


def load_remote(text: str, sender: str, overrides: Mapping[str, Any]) -> Scenario:
    """Return the scenario of YAML text that came from another machine.

    Args:
        text: The YAML text.
        sender: Its origin, for messages.
        overrides: Values by dotted path, as `load` takes them.

    Raises:
        BadInput: It is no scenario, or a block of it would open or execute something on this machine.
    """
    # Plain values: anchors, merges and tags are resolved before the check, so they hide no block
    # (test_remote.py: test_anchors_and_merges_hide_no_block).
    values = plain(parse(text, sender))
    if not isinstance(values, dict):
        raise BadInput(f"{sender}: must be a mapping of keys to values")
    # First without executing anything: a file's class then stays a `FileKind`, which `openings` refuses.
    with left_alone():
        scenario = load(values, overrides)
    for path, what in openings(scenario):
        remedy = "pass the scenario as your file, whose files are then your choice"
        raise BadInput(f"{sender}: {path}: {what}: {remedy}")
    # The values that were checked, and no second reading of the text, so nothing can change between the two.
    # This time the classes are real.
    return load(values, overrides)


def openings(block: Block, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each part of a block that would open or execute something on this machine, as (key, reason)."""
    # The block is refused as a whole, so its fields are not looked at.
    if block.opens:
        module = getattr(block, "module", "")
        yield path, f"{block.opens}{f', {cut(str(module), 80)}' if module else ''}"
        return
    # The annotations of the class: `model_fields` has an annotation's outermost markers in another place.
    for name, annotation in hints(type(block)).items():
        markers = list(text_markers(annotation))
        yield from _in_value(getattr(block, name), markers, f"{path}.{name}".lstrip("."))


def _in_value(value: Any, markers: list[Any], path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Block):
        yield from openings(value, path)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            # A mapping's keys are texts of the sender too.
            yield from _in_value(key, markers, path)
            yield from _in_value(inner, markers, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, inner in enumerate(value):
            yield from _in_value(inner, markers, f"{path}.{index}")
    elif isinstance(value, str):
        # Every free text of the annotation must be harmless, since a value may be any of them. Without a
        # marker the annotation has only words of a `Literal`, and pydantic has compared these.
        if not all(_is_harmless(value, marker) for marker in markers):
            yield path, f"names a file or folder, {cut(value, 80)!r}"
    # Refused by default: bytes, a path or an object of a field of type `Any` may open anything.
    elif not isinstance(value, bool | int | float | None):
        yield path, f"is a {type(value).__name__}, which is no plain value"


def _is_harmless(text: str, marker: Any) -> bool:
    # An unmarked text has the marker None, which is neither (test_remote.py:
    # test_unmarked_text_is_refused_by_default).
    return isinstance(marker, NamesNothing) or (isinstance(marker, NamesFile) and text in marker.shipped())


def text_markers(annotation: Any) -> Iterator[Any]:
    """Yield the marker of each free text that a field accepts, None for an unmarked one; blocks are left
    out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extras = get_args(annotation)
        if inner is str:
            marked = [extra for extra in extras if isinstance(extra, NamesFile | NamesNothing)]
            yield marked[-1] if marked else None
        else:
            yield from text_markers(inner)
    # None refuses: the author of a field must state that its text is harmless.
    elif annotation is str or annotation is Any or annotation is object:
        yield None
    elif origin is not None and origin is not Literal:
        for inner in get_args(annotation):
            yield from text_markers(inner)
