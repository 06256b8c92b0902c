"""What the blocks of a scenario are made of: frozen models, shorthands, numbers, distributions.

Every choice is a union told apart by `kind`. Two shorthands hold everywhere: a bare word is its kind
(`availability: always`), and a mapping with one entry may name kind and main value
(`detect: {disconnect: 0.5}`). Units live in names. Nothing that costs time has a default of zero
seconds: durations, rates and deadlines are either given or an error.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=1)]
Natural = Annotated[int, Field(strict=True, ge=0)]


class Block(BaseModel):
    """A part of a scenario: frozen, extra keys forbidden, no silent coercion between types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )


def shorthand(**main: str) -> BeforeValidator:
    """Accept `word` for `{kind: word}` and `{word: value}` for `{kind: word, <main[word]>: value}`."""

    def expand(value: Any) -> Any:
        if isinstance(value, str):
            word, colon, rest = value.partition(":")
            if colon and word in main:
                return {"kind": word, main[word]: rest}
            return {"kind": value}
        if isinstance(value, dict) and "kind" not in value and len(value) == 1:
            ((word, inner),) = value.items()
            if word in main:
                return {"kind": word, main[word]: inner}
        return value

    return BeforeValidator(expand)


def bare_number(kind: str, main: str) -> BeforeValidator:
    """Accept a number for `{kind: <kind>, <main>: number}`."""

    def expand(value: Any) -> Any:
        return {"kind": kind, main: value} if isinstance(value, int | float) else value

    return BeforeValidator(expand)


class Fixed(Block):
    """The same value for every user."""

    kind: Literal["fixed"] = "fixed"
    value: Positive
    """The value."""


class Uniform(Block):
    """Uniform on [low, high]."""

    kind: Literal["uniform"] = "uniform"
    low: Positive
    """The least."""
    high: Positive
    """The most; not below `low`."""

    @model_validator(mode="after")
    def ordered(self) -> Uniform:
        if self.low > self.high:
            raise ValueError(f"low={self.low:g} must not be above high={self.high:g}")
        return self


class LogNormal(Block):
    """Log-normal with the given median; sigma is the standard deviation of the logarithm."""

    kind: Literal["lognormal"] = "lognormal"
    median: Positive
    """The median."""
    sigma: NonNegative
    """The standard deviation of the logarithm."""


class Exponential(Block):
    """Exponential with the given mean."""

    kind: Literal["exponential"] = "exponential"
    mean: Positive
    """The mean."""


Distribution = Annotated[
    Fixed | Uniform | LogNormal | Exponential,
    Field(discriminator="kind"),
    shorthand(fixed="value", exponential="mean"),
    bare_number("fixed", "value"),
]
