"""Tables as Parquet, where pyarrow is installed (`simfl[parquet]`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simfl.folder.result import atomic


def write_parquet(path: Path, table: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of one length, each of one type: numbers; or text, with lists and mappings as JSON."""
    import pyarrow
    from pyarrow import parquet

    arrays = {name: pyarrow.array(_of_one_type(column)) for name, column in table.items()}
    with atomic(path, binary=True) as file:
        parquet.write_table(pyarrow.table(arrays), file)


def _of_one_type(column: Sequence[Any]) -> Sequence[Any]:
    types = {type(value) for value in column if value is not None}
    if types == {int, float}:
        return [None if value is None else float(value) for value in column]
    if types <= {int} or types <= {float}:
        return column
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in column]
