"""Device profiles: the seconds of each kind of work on a named machine."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simfl.errors import BadInput
from simfl.protocols.ops import WORK


class ProfileError(BadInput):
    """A profile that does not exist or is not complete."""


class Profile(BaseModel):
    """Seconds per operation; every kind of `WORK` must be there, since a missing one would cost nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str
    seconds: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]


def names() -> list[str]:
    """The profiles that are shipped."""
    folder = resources.files(__package__)
    return sorted(f.name[: -len(".yaml")] for f in folder.iterdir() if f.name.endswith(".yaml"))


def load(name: str) -> Profile:
    """A shipped profile by name, or one from a YAML file by path.

    Raises:
        ProfileError: there is none, or it does not give each kind of work its seconds.
    """
    file = resources.files(__package__) / f"{name}.yaml" if name in names() else Path(name)
    if not file.is_file():
        raise ProfileError(f"profile {name!r} is neither a file nor one of {', '.join(names())}")
    try:
        profile = Profile.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {name}: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileError(f"profile {name}: {place}: {first['msg']}") from None
    missing, unknown = set(WORK) - set(profile.seconds), set(profile.seconds) - set(WORK)
    if missing:
        raise ProfileError(f"profile {name}: seconds.{sorted(missing)[0]} is missing")
    if unknown:
        raise ProfileError(f"profile {name}: seconds.{sorted(unknown)[0]} is no kind of work")
    return profile
