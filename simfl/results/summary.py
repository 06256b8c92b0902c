"""The schema of `summary.json`: what it holds of a run, of each protocol and of each round.

Times are seconds of virtual time, bytes are of all users together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from simfl.errors import BadInput
from simfl.results.strict_json import parse
from simfl.results.text import shown

SCHEMA = 2

Count = Annotated[int, Field(ge=0, le=10**24)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = TypeVar("Number")


class Block(BaseModel):
    """Values are as they are written, nothing is converted; keys that a later version adds are left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class ByPhase(Block, Generic[Number]):
    """A number for each phase of `trace.PHASES`."""

    offline: Number
    training: Number
    upload: Number
    recovery: Number


class ByKind(Block):
    """Seconds of a critical path, by what was waited for."""

    compute: Seconds
    network: Seconds
    wait: Seconds


class RoundSummary(Block):
    """A round, or an aggregation of an asynchronous run. None: no content, or not asked for."""

    index: Count
    status: Literal["completed", "aborted"]
    reason: str | None
    start_s: Seconds
    end_s: Seconds
    selected: Count
    survivors: Count
    dropped: ByPhase[Count]
    dropout_rate: Share | None
    span_s: ByPhase[Seconds]
    critical_s: ByPhase[Seconds]
    critical_kinds_s: ByKind
    aggregate_exact: bool | None
    wrapped: Count | None
    clipped: Count | None
    updates_clipped: Count | None
    bytes_up: Count
    bytes_down: Count
    ignored: dict[str, Count]
    discarded_stale: Count
    refused: dict[str, Count]
    reliable: bool | None
    private: bool | None
    accuracy: Share | None
    loss: float | None


class Means(Block):
    """Means over the completed rounds; None without any."""

    span_s: ByPhase[Seconds | None]
    critical_s: ByPhase[Seconds | None]
    total_s: Seconds | None


class ParticipationSummary(Block):
    """T, F and C after each round (`result.taking_part`)."""

    family: Annotated[int, Field(ge=1)] | None
    T_weak: list[Annotated[list[Count], Field(min_length=2, max_length=2)] | None]
    T_strong: list[Count | None]
    F: list[Share]
    C: list[Annotated[float, Field(ge=0, le=1e15)]]


class ProtocolSummary(Block):
    """An entry of a scenario's protocols. staleness: updates by how many versions late they came."""

    rounds: list[RoundSummary]
    mean: Means
    final_accuracy: Share | None
    staleness: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Count] | None
    selection: dict[str, JsonValue]
    training: str | None
    participation: ParticipationSummary | None

    @model_validator(mode="after")
    def _after_each_round(self) -> Self:
        shares, rounds = self.participation, len(self.rounds)
        if shares is not None:
            for name in ("T_weak", "T_strong", "F", "C"):
                if len(getattr(shares, name)) != rounds or not rounds:
                    raise ValueError(f"participation.{name} must have an entry for each of {rounds} rounds")
        return self


class Summary(Block):
    """The whole file. `interrupted`: rounds are missing because the run was stopped."""

    schema_: Literal[2] = Field(alias="schema")
    scenario: str
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    clock: Literal["measured", "modelled", "recorded"]
    payload: Literal["real", "shadow"]
    interrupted: bool
    versions: dict[str, str]
    protocols: dict[str, ProtocolSummary]


def read(path: Path) -> dict[str, Any]:
    """The content of a `summary.json`.

    Raises:
        BadInput: the file cannot be read or is none; names the key, the value and what is expected.
    """
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        told = shown(schema)
        raise BadInput(f"{path}: schema {told}; reports are made from schema {SCHEMA}: run it again")
    try:
        return Summary.model_validate(content).model_dump(by_alias=True)
    except ValidationError as error:
        raise BadInput(f"{path}: {_problem(error)}") from None


def _problem(errors: ValidationError) -> str:
    """The first problem: its key, the value, and what is expected."""
    first = errors.errors(include_url=False)[0]
    where = ""
    for part in first["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}"
    where, message, told = where.removeprefix("."), first["msg"], shown(first["input"])
    match first["type"]:
        case "missing":
            return f"{where} is missing"
        case "value_error":
            return f"{where}: {message.removeprefix('Value error, ')}"
        case "model_type" | "dict_type":
            return f"{where} is {told}, expected a mapping"
    expected = message.removeprefix("Input should be ")
    return f"{where} is {told}{', expected' if expected != message else ':'} {expected}"
