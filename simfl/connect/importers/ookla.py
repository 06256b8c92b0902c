"""Ookla's open data of speed tests, by country or by tile: rates and latency of a location in each row."""

import csv
import io
import math
from pathlib import Path

from simfl.connect.importers import MAX_PROBLEMS, Imported, Table
from simfl.errors import Problem, ScenarioError, counted, refusal, show, text_of

MAX_BYTES = 2**28
MAX_VALUE = 1e9
"""Largest number of a file: kbit/s or milliseconds."""
NUMBERS = ("avg_u_kbps", "avg_d_kbps", "avg_lat_ms")
COLUMNS = ("Avg. Avg U Kbps", "Avg. Avg D Kbps", "Avg Lat Ms")


def ookla(path: Path) -> Imported:
    """Return the table `capacity`; rows with a missing number are dropped.

    Raises:
        ScenarioError: The file is not CSV, lacks a column of `NUMBERS` (also spelt as in `COLUMNS`), or has a
            value that is not a number.
    """
    file = str(path)
    reader = csv.reader(io.StringIO(text_of(path, file, max_bytes=MAX_BYTES), newline=""), strict=True)
    rows: list[tuple[int, str, float, float, float]] = []
    problems: list[Problem] = []
    dropped = 0
    try:
        header = [_plain_name(name) for name in next(reader, [])]
        # Two spellings are published: by country in words, by tile in short.
        for name, shown in zip(NUMBERS, COLUMNS, strict=True):
            if header.count(name) != 1:
                problem = "doubled" if name in header else "missing"
                raise refusal(file, 1, f"the column {shown} (or {name}) is {problem}")
        number_columns = [header.index(name) for name in NUMBERS]
        name_column = header.index("name") if "name" in header else 0
        # Empty lines are no rows.
        for row in filter(None, reader):
            numbers = [0.0]
            try:
                if len(row) != len(header):
                    raise ValueError(f"{len(row)} values, but the header names {len(header)} columns")
                numbers = [_number(COLUMNS[i], row[column]) for i, column in enumerate(number_columns)]
            except ValueError as error:
                problems.append(Problem(file, reader.line_num, "", str(error)))
                if len(problems) == MAX_PROBLEMS:
                    break
            # A missing number, or a row with a problem, which is reported below.
            if 0 in numbers:
                dropped += 1
                continue
            up, down, ms = numbers
            # The latency is that of a round trip: half of it is one way.
            rows.append((len(rows), row[name_column], up / 1000, down / 1000, ms / 2000))
    except csv.Error as error:
        raise refusal(file, reader.line_num, f"not CSV: {error}") from None
    if problems:
        raise ScenarioError(problems)
    return Imported(
        {"capacity": Table(("entry", "name", "uplink_mbps", "downlink_mbps", "latency_s"), rows)},
        f"entries: {len(rows)}; dropped: {counted(dropped, 'row')} without all three numbers",
    )


def _plain_name(name: str) -> str:
    """Return the name of a column in the spelling of the tables by tile."""
    return name.strip().lower().removeprefix("avg. ").replace(" ", "_")


def _number(column: str, text: str) -> float:
    """Return a number, 0 where it is missing."""
    try:
        number = float(text) if text.strip() else 0.0
    except ValueError:
        number = math.nan
    if not 0 <= number <= MAX_VALUE:
        raise ValueError(f"{column}: must be a number from 0 to {MAX_VALUE:g}, not {show(text)}")
    return number
