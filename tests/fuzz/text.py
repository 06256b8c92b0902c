"""Plain values as the text of a scenario, whatever they are: what YAML cannot write is written all the same.

A key a line, so that what is not needed of a text can be dropped line by line (`shrink`).
"""

from __future__ import annotations

import math
import re
from typing import Any


class Raw(str):
    """Text that goes into the file as it is."""


PLAIN = re.compile(r"(?!(null|true|false|nan|inf)\b)[A-Za-z_][A-Za-z0-9_]*", re.I)


def dump(tree: dict[str, Any]) -> str:
    """A mapping as block YAML."""
    return "".join(f"{line}\n" for line in _block(tree, ""))


def _block(tree: dict[Any, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{flow(key)}:", *_block(value, f"{indent}  ")]
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines += [f"{indent}{flow(key)}:", *(f"{indent}  - {flow(item)}" for item in value)]
        else:
            lines.append(f"{indent}{flow(key)}: {flow(value)}")
    return lines


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Raw):
        return value
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10**100 else hex(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return value if PLAIN.fullmatch(value) else '"' + "".join(map(_escaped, value)) + '"'


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"


def _escaped(character: str) -> str:
    """One character of a double-quoted text; halves of surrogate pairs, too, can be written so."""
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    if 0x20 <= code < 0x7F:
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
