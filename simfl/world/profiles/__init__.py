"""Device profiles: the seconds of each kind of work on a named machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from simfl.dataplane.work import CODEC, WORK
from simfl.errors import BadInput, cut, show


class ProfileError(BadInput):
    """A profile that does not exist or is not complete."""


Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Intervals = dict[str, tuple[Seconds, Seconds]]  # rate -> the ends of its 95 % confidence interval

# Kinds of `WORK` whose seconds are a law of training's, and not a rate of the profile.
TRAINING_WORK = ("train_start", "train_sample")


_NOT_BEFORE = (
    "long_row", "gathered_row", "vector", "short_element", "expansion", "mds_element", "softmax_start",
    "softmax_weight",
)  # fmt: skip
BEFORE = {
    **dict.fromkeys(_NOT_BEFORE, "1.0e-30"),
    "mds_inverse": "that of mds_coefficient",
    "softmax_step": "that of train_step",
    "softmax_mac": "that of train_mac",
}
"""Kinds of work that earlier profiles lack -> the rate by which they charge nothing of their own."""


class TrainingLaw(BaseModel):
    """One local training of a model takes T = start + step S + sample E n seconds: S minibatches, E n
    samples."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str
    """The word of one of ours, or Class#digest of its layers, which stays when a file is moved or
    commented."""
    shape: tuple[Count, ...]
    """Of a sample."""
    batch_size: Count
    """Samples of a whole minibatch."""
    start: Seconds
    """Seconds of a training, however short."""
    step: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """Seconds of a minibatch, besides those of its samples; without it, minibatches take nothing of their
    own."""
    sample: Seconds
    """Seconds of a sample that is passed over."""
    intervals: Intervals = {}
    """95 % confidence intervals of the three."""

    @model_validator(mode="after")
    def has_good_intervals(self) -> TrainingLaw:
        _check_intervals(self.intervals, {"start": self.start, "step": self.step, "sample": self.sample})
        return self


class Profile(BaseModel):
    """Seconds per operation; every kind of `WORK` must be there, since a missing one would cost nothing;
    `codec_byte` for scenarios that count it.

    Models that `training` has no law of are charged by their multiply-adds and minibatches. Nothing is
    charged by `intervals`: they say how well measured rates are known; one written over may lie outside.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    description: str
    seconds: dict[str, Seconds]
    intervals: Intervals = {}
    training: tuple[TrainingLaw, ...] = ()

    @model_validator(mode="after")
    def has_good_intervals(self) -> Profile:
        _check_intervals(self.intervals, self.seconds)
        return self

    def law(self, model: str, shape: tuple[int, ...], batch_size: int) -> TrainingLaw | None:
        wanted = model.rpartition("#")[2], shape, batch_size
        found = {(law.model.rpartition("#")[2], law.shape, law.batch_size): law for law in self.training}
        return found.get(wanted)


def _check_intervals(intervals: Intervals, rates: dict[str, float]) -> None:
    for kind, (low, high) in intervals.items():
        if kind not in rates:
            raise ValueError(f"intervals.{kind} is of no rate that is given")
        if low > high:
            raise ValueError(f"intervals.{kind}: {low:g} is above {high:g}")


def names() -> list[str]:
    """Return the profiles that are shipped."""
    return sorted(
        Path(f.name).stem for f in resources.files(__package__).iterdir() if f.name.endswith(".yaml")
    )


def text(profile: Mapping[str, Any]) -> str:
    """Return a profile's file: a rate a line, so that one is easily written over."""
    first = {key: profile[key] for key in ("description", "seconds")}
    rest = {key: value for key, value in profile.items() if key not in first}
    out: str = yaml.safe_dump(first, sort_keys=False, width=100, default_flow_style=False)
    return out + (yaml.safe_dump(rest, sort_keys=False, width=100, default_flow_style=None) if rest else "")


def load(name: str) -> Profile:
    """Return a shipped profile by name, or one from a YAML file by path; ProfileError if there is none, or it
    does not give each kind of work its seconds."""
    if name in names():
        return _shipped(name)
    if not Path(name).is_file():
        raise ProfileError(f"profile {cut(repr(name))} is neither a file nor one of {', '.join(names())}")
    return _read(name, Path(name))


@cache
def _shipped(name: str) -> Profile:
    return _read(name, resources.files(__package__) / f"{name}.yaml")


def _read(name: str, file: Traversable) -> Profile:
    try:
        profile = Profile.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place, value = ".".join(map(str, first["loc"])), first["input"]
        found = "" if isinstance(value, dict | list) else f", not {show(value)}"
        raise ProfileError(f"profile {name}: {cut(place)}: {first['msg']}{found}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no text, no YAML, endless digits, ...
        raise ProfileError(f"profile {name}: {cut(' '.join(str(error).split()))}") from None
    for kind in sorted((set(profile.seconds) - {CODEC}) ^ (set(WORK) - set(TRAINING_WORK))):
        if kind in profile.seconds:
            raise ProfileError(f"profile {name}: seconds.{kind} is no kind of work")
        remedy = "measure the machine by `simfl calibrate`"
        if kind in BEFORE:
            remedy += f", or charge as before by {BEFORE[kind]}"
        raise ProfileError(f"profile {name}: seconds.{kind} is missing: {remedy}")
    return profile
