"""A part of `summary.json`, and the bounds of its numbers."""

from collections.abc import Callable
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from simfl.results.trace import PHASES

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

    @classmethod
    def of(cls, number: Callable[[str], Any]) -> Self:
        return cls(**{phase: number(phase) for phase in PHASES})

    def __getitem__(self, phase: str) -> Number:
        number: Number = getattr(self, phase)
        return number
