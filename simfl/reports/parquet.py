"""Tables as Parquet, where pyarrow is installed (`simfl[parquet]`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from simfl.errors import BadInput
from simfl.folder.result import atomic


def need() -> None:
    """See to it that Parquet can be written.

    Raises:
        BadInput: pyarrow is not installed; names the extra.
    """
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("--parquet needs pyarrow: pip install 'simfl[parquet]'") from None


def write_parquet(path: Path, table: Mapping[str, Sequence[Any]]) -> None:
    """Columns of one length as a file: numbers as numbers; one that holds anything else as text, lists and
    mappings as JSON."""
    import pyarrow
    from pyarrow import parquet

    arrays = {name: pyarrow.array(_of_one_kind(column)) for name, column in table.items()}
    with atomic(path, binary=True) as file:
        parquet.write_table(pyarrow.table(arrays), file)


def _of_one_kind(column: Sequence[Any]) -> Sequence[Any]:
    if all(value is None or type(value) in (int, float) for value in column):
        return column if all(type(value) is not float for value in column) else [_float(v) for v in column]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in column]


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
