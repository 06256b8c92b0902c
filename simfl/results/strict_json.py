"""JSON of files that anybody may have edited: ValueError is all that reading it raises."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import from_json

from simfl.results.text import shown

parse = from_json
"""Return the value of a JSON text; NaN and Infinity are numbers, so that a message can name their place.

ValueError: it is no JSON, is nested too deeply, or holds half a character or too long a number.
"""


def first_problem(errors: ValidationError) -> str:
    """Return the first problem that a model has with a value: its key, the value, and what is expected."""
    first = errors.errors(include_url=False)[0]
    kind, message, value = first["type"], first["msg"], shown(first["input"])
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    key = "".join(parts).removeprefix(".")
    found = f"{key} is {value}" if key else value
    match kind:
        case "json_invalid":
            return f"not JSON ({message.removeprefix('Invalid JSON: ')})"
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden":
            return f"{key} is not a field of it"
        case "value_error":
            return f"{key}: {message.removeprefix('Value error, ')}"
        case "model_type" | "dict_type":
            return f"{found}, expected a mapping"
    expected = message.removeprefix("Input should be ")
    return f"{found}{', expected' if expected != message else ':'} {expected}"
