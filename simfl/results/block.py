"""A part of `summary.json`, and the bounds of its numbers."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Count = Annotated[int, Field(ge=0, le=10**24)]
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]


class Block(BaseModel):
    """Values are as they are written, nothing is converted; keys that a later version adds are left out."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


def leaving_out(name: str) -> Any:
    """Return a block's serializer that leaves a field out where it is zero."""

    def written(self: Any, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if key != name or value}

    return model_serializer(mode="wrap")(written)
