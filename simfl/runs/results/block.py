"""A part of `summary.json`, and the bounds of its numbers."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from simfl.trace.rows import PHASES

Count = Annotated[int, Field(ge=0, le=10**24)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]

Number = TypeVar("Number")


class SummaryBlock(BaseModel):
    """Values are as they are written, nothing is converted; keys that a later version adds are left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class ByPhase(SummaryBlock, Generic[Number]):
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


class OmitDefaults(SummaryBlock):
    """Keys with a default are written where they differ from it: a run without a feature leaves the summary
    that it left before there was any. kept: those that are written all the same."""

    kept: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        fields = type(self).model_fields
        needed = {k for k, field in fields.items() if field.is_required() or k in self.kept}
        return {k: v for k, v in dump(self).items() if k in needed or v != fields[k].default}
