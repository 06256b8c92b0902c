"""A part of `summary.json`, and the bounds of its numbers."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_serializer

Count = Annotated[int, Field(ge=0, le=10**24)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]


class Block(BaseModel):
    """Values are as they are written, nothing is converted; keys that a later version adds are left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class Extended(Block):
    """Keys with a default are written where they differ from it: a run without a feature leaves the summary
    that it left before there was any."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        fields = type(self).model_fields
        return {k: v for k, v in dump(self).items() if fields[k].is_required() or v != fields[k].default}
