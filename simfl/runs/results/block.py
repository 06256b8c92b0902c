"""Base classes of the parts of `summary.json`, and the bounds of their numbers."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from simfl.trace.rows import PHASES

# The upper bounds keep sums of numbers from a damaged file finite (`test_damage_ends_in_one_message`).
Count = Annotated[int, Field(ge=0, le=10**24)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]

Number = TypeVar("Number")


class SummaryBlock(BaseModel):
    """A part of `summary.json`. Values are read as they are written; keys of later versions are left out."""

    # Keys of a later simfl are ignored, so that its files can be read. JSON has no NaN, so none may be
    # written.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class ByPhase(SummaryBlock, Generic[Number]):
    """A number for each phase of `trace.PHASES`."""

    offline: Number
    """Of the offline phase."""
    training: Number
    """Of local training."""
    upload: Number
    """Of the upload."""
    recovery: Number
    """Of the recovery of the aggregate."""

    @classmethod
    def of(cls, number: Callable[[str], Any]) -> Self:
        """Return the number of each phase, by the phase's name."""
        return cls(**{phase: number(phase) for phase in PHASES})

    def __getitem__(self, phase: str) -> Number:
        number: Number = getattr(self, phase)
        return number


class OmitDefaults(SummaryBlock):
    """A block that leaves out keys at their default: a run without a feature writes no key of it."""

    # A new feature then changes no summary of a run without it, byte for byte.

    kept: ClassVar[tuple[str, ...]] = ()
    """Keys with a default that are written all the same."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        # Compared after the dump: a nested block is a dictionary by then, so its default must be None.
        fields = type(self).model_fields
        needed = {k for k, field in fields.items() if field.is_required() or k in self.kept}
        return {k: v for k, v in dump(self).items() if k in needed or v != fields[k].default}
