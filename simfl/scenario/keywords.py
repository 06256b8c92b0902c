"""Keywords of `simfl.run`: short words for the dotted keys that are varied first."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict

from simfl.config.yaml_tree import OVERRIDES
from simfl.errors import BadInput, Problem, ScenarioError, did_you_mean
from simfl.scenario.load import Source, load
from simfl.scenario.schema import Scenario

MINIMAL = "minimal"
"""The shipped scenario that is run where none is named."""


class Keywords(TypedDict, total=False):
    """Changes of a scenario; omitted keys keep its values. `overrides` change anything else."""

    protocols: Sequence[str] | Mapping[str, Any]
    """The protocols that are compared: names, or a mapping from names to settings."""
    users: int
    """N, the number of users."""
    rounds: int
    """Rounds of each protocol, or aggregations of a buffer."""
    dropout: float | Mapping[str, Any]
    """The fraction of a round's users, 0 to 1, who are lost before their upload; or a mapping."""
    seed: int
    """The seed of every draw: the same one meets the same users, losses, data and links."""
    clock: str
    """`modelled`, `measured`, or `recorded:DIR`."""
    payload: str
    """`real`, or `shadow` to count the work without doing it."""


KEYS = {"users": "population.users"}
"""A keyword -> its dotted key, where that is not the keyword itself."""


def load_with(source: Source, overrides: Mapping[str, Any] | None, keywords: Keywords) -> Scenario:
    """Load a scenario with values by keyword, then those by dotted key.

    Raises:
        BadInput: a keyword is unknown; or, as a ScenarioError, something is wrong in the scenario.
    """
    words = Keywords.__annotations__
    for word in keywords.keys() - words:
        bound = f"must be one of {', '.join(words)}; overrides have any other key"
        raise BadInput(f"{word}: {bound}{did_you_mean(word, words)}")
    # None leaves a key as it is: a caller may pass its own optional arguments on (test_keywords.py:
    # test_keyword_of_none_leaves_the_scenario_as_it_is).
    given = {KEYS.get(word, word): value for word, value in keywords.items() if value is not None}
    with named_by_keyword(keywords):
        # Overrides are applied last, so a dotted key has priority over a keyword.
        return load(source, {**given, **(overrides or {})})


@contextmanager
def named_by_keyword(keywords: Keywords) -> Iterator[None]:
    """Name a problem of a keyword's value by the keyword, instead of the dotted key that it stands for."""
    try:
        yield
    except ScenarioError as error:
        raise ScenarioError([_by_keyword(problem, keywords) for problem in error.problems]) from None


def _by_keyword(problem: Problem, keywords: Keywords) -> Problem:
    # Only values from Python: a problem of the file keeps its line and its key.
    for word in keywords if problem.file == OVERRIDES else ():
        key = KEYS.get(word, word)
        # With the dot: a key that merely begins with the same letters is another one.
        if problem.path == key or problem.path.startswith(f"{key}."):
            return replace(problem, file="", path=word + problem.path.removeprefix(key))
    return problem
