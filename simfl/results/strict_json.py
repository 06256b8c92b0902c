"""JSON of files that anybody may have edited: ValueError is all that parsing it raises."""

from __future__ import annotations

import json
from typing import Any

from simfl.results.text import shown

_decode = json.JSONDecoder().decode


def parse(text: str) -> Any:
    """The value of a JSON text. NaN and Infinity are numbers here, as a message can then name their place.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or holds half a character or too long a number.
    """
    try:
        value = _decode(text)
        if "\\u" in text:  # the only way in which half a surrogate pair gets past UTF-8
            _check_text(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _check_text(value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key)
            _check_text(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_text(inner)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{shown(value)} holds half a character") from None
