"""The errors that a user can cause; any other is a bug."""

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

executed_files: set[Path] = set()
"""A user's Python files that were executed (`config.python_files`): an error of theirs is theirs."""

MAX_SHOWN = 200  # characters of a user's own text in a message
MAX_PROBLEMS = 40  # lines of a message; `ScenarioError.problems` has them all


def cut(text: str, most: int = MAX_SHOWN) -> str:
    """Return a user's own text for a message: shortened, without characters that act on a terminal."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:most])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 user, 2 users."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def show(value: Any) -> str:
    """Return a value in a few words for a message."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN:  # Python writes no int beyond 4,300 digits
        return f"a whole number of {value.bit_length()} bits"
    text = cut(repr(value))
    return text if len(text) <= 60 else f"{text[:50]}...{repr(value)[-1]}"


def reason(error: BaseException) -> str:
    """Return an error in a few words, of the system's own without its number and file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def closest(word: object, known: Iterable[str]) -> list[str]:
    """Return the name most like a word, if one is like it at all."""
    names = {name.lower(): name for name in known}
    return [names[n] for n in get_close_matches(word.lower(), names, n=1)] if isinstance(word, str) else []


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of a message: the name that may have been meant.

    >>> did_you_mean("fedavgg", ["secagg", "fedavg"])
    "; did you mean 'fedavg'?"
    """
    return "".join(f"; did you mean {guess!r}?" for guess in closest(word, known))


class BadInput(ValueError):
    """An unusable scenario, profile or recording; the text names value, bound and place."""


def need(option: str, module: str, extra: str = "") -> None:
    """Raise BadInput, which names the extra to install, unless the library behind an option is there."""
    try:
        import_module(module)
    except ImportError:
        library, extra = module.partition(".")[0], extra or option.removeprefix("--")
        raise BadInput(f"{option} needs {library}: pip install 'simfl[{extra}]'") from None


@dataclass(frozen=True, slots=True)
class Problem:
    """A message and its place: `path` is the dotted path of keys, `line` counts from 1."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        file = self.file if len(self.file) <= MAX_SHOWN else f"...{self.file[3 - MAX_SHOWN :]}"
        place = file if self.line is None else f"{file}:{self.line}"
        return ": ".join(part for part in (place, cut(self.path), self.message) if part)


class ScenarioError(BadInput):
    """A scenario that cannot be run; its text has one line a problem.

    >>> import simfl
    >>> try:
    ...     simfl.run("scenarios/tutorial.yaml", {"privacy.T": 12})
    ... except simfl.ScenarioError as error:
    ...     print(error.problems[0].path)
    privacy.T
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        more = len(self.problems) - len(lines)
        super().__init__("\n".join(lines + ([f"... and {counted(more, 'problem')} more"] if more else [])))


def refusal(file: str, line: int | None, message: str, path: str = "") -> ScenarioError:
    """The error of a single problem."""
    return ScenarioError([Problem(file, line, path, message)])


MOST_BYTES = 2**30
"""Of a file that is read whole, unless its reader says otherwise."""


def bytes_of(path: Path, file: str, key: str = "", most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file, which the scenario names at `key`. ScenarioError if it cannot be read, or
    has more than `most`, of which no more is read, so that an endless pipe ends too."""
    try:
        with path.open("rb") as stream:
            content = stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise refusal(file, None, f"cannot be read: {reason(error)}", key) from None
    if len(content) > most:
        raise refusal(file, None, f"has more than {most} bytes, too many to be read", key)
    return content


def text_of(path: Path, file: str, key: str = "", most: int = MOST_BYTES) -> str:
    """Return the text of a file, which the scenario names at `key`. ScenarioError if it cannot be read."""
    try:
        return bytes_of(path, file, key, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise refusal(file, line, "not UTF-8 text", key) from None


class RunFailed(RuntimeError):
    """A run that cannot go on; its text says where and why."""


class DataPlaneError(RunFailed):
    """Real work failed."""


class ClusterFailed(DataPlaneError):
    """A cluster failed, and not the work: the run can go on later, there or elsewhere."""


class Diverged(ValueError):
    def __init__(self, user: int, index: int) -> None:
        remedy = "its update is not finite: use a smaller learning.lr, or learning.clip"
        super().__init__(f"training diverged: user {user}, round {index}: {remedy}")


def raised(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    place = f"{path}:{lines[-1]}" if lines else str(path)
    return f"{place} raised {type(error).__name__}: {error}"


def blame(error: BaseException) -> str | None:
    """Return the executed file that raised an error, with the line; None if it is none of theirs."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).resolve() in executed_files:
            return raised(error, Path(frame.filename))
    # SimPy raises what a process raised once more, as the cause of its like.
    cause = error.__cause__
    return blame(cause) if type(cause) is type(error) and cause.args == error.args else None


def step_failed(where: tuple[object, ...], operation: str, error: BaseException) -> DataPlaneError:
    """Name the step (protocol, round, party, call, what), the operation if it is known, and the reason."""
    if isinstance(error, Diverged):  # it knows its user and round, and no operation is at fault
        return DataPlaneError(": ".join([*map(str, where[:1]), str(error)]))
    place = "the simulator's own work"
    if where:
        name, index, party, call, what = where
        worker = "the server" if party == -1 else f"user {party}"
        place = f"{name}, round {index}, {worker}, {call} {what}".rstrip()
    kind = ClusterFailed if isinstance(error, ClusterFailed) else DataPlaneError
    return kind(": ".join(part for part in (place, operation, blame(error) or str(error)) if part))
