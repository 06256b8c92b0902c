"""The errors that a user can cause; any other is a bug."""

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

executed_files: set[Path] = set()
"""A user's Python files that were executed (`config.python_files`); their errors are located in them."""
MAX_SHOWN = 200
"""Maximum characters of a user's text in a message."""
MAX_PROBLEMS = 40
"""Maximum lines of a message; `ScenarioError.problems` has them all."""


def cut(text: str, max_length: int = MAX_SHOWN) -> str:
    """Return a user's text for a message: shortened, without characters that act on a terminal."""
    if not text.isprintable():
        # Control characters in a file's text could move a terminal's cursor or set its title.
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:max_length])
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 user, 2 users."""
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
    # The closing quote shows that a shortened value is text.
    text = cut(repr(value))
    return text if len(text) <= 60 else f"{text[:50]}...{repr(value)[-1]}"


def reason(error: BaseException) -> str:
    """Return an error in a few words; errors of the system lose their number and file."""
    # Callers name the file themselves, and the system's error number helps no user.
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def closest(word: object, known: Iterable[str]) -> list[str]:
    """Return the name most similar to a word, if one is similar at all."""
    names = {name.lower(): name for name in known}
    return [names[n] for n in get_close_matches(word.lower(), names, n=1)] if isinstance(word, str) else []


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of a message: the name that was perhaps intended.

    >>> did_you_mean("fedavgg", ["secagg", "fedavg"])
    "; did you mean 'fedavg'?"
    """
    return "".join(f"; did you mean {guess!r}?" for guess in closest(word, known))


class BadInput(ValueError):
    """An unusable scenario, profile or recording; the text names value, bound and place."""


def need(option: str, module: str, extra: str = "") -> None:
    """Check that the library behind an option is installed.

    Args:
        option: The option, for the message.
        module: A module of the library.
        extra: Extra of simfl that installs it; unless given, of the option's name.

    Raises:
        BadInput: It is not installed; the text names the extra.
    """
    try:
        # Imported and not only looked for: a broken installation has a spec too.
        import_module(module)
    except ImportError:
        library, extra = module.partition(".")[0], extra or option.removeprefix("--")
        raise BadInput(f"{option} needs {library}: pip install 'simfl[{extra}]'") from None


@dataclass(frozen=True, slots=True)
class Problem:
    """A message and its place."""

    file: str
    """Name of the file."""
    line: int | None
    """From 1; None where it is not known."""
    path: str
    """Dotted path of keys."""
    message: str
    """Value, bound and remedy."""

    def __str__(self) -> str:
        # The end of a path identifies it better than its beginning.
        file = self.file if len(self.file) <= MAX_SHOWN else f"...{self.file[3 - MAX_SHOWN :]}"
        location = file if self.line is None else f"{file}:{self.line}"
        return ": ".join(part for part in (location, cut(self.path), self.message) if part)


class ScenarioError(BadInput):
    """A scenario that cannot be run; its text has a line for each problem.

    >>> import simfl
    >>> try:
    ...     simfl.run("scenarios/tutorial.yaml", {"privacy.T": 12})
    ... except simfl.ScenarioError as error:
    ...     print(error.problems[0].path)
    privacy.T
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        # A file of a thousand mistakes must not scroll the first ones away.
        lines = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        if hidden := len(self.problems) - len(lines):
            lines.append(f"... and {counted(hidden, 'problem')} more")
        super().__init__("\n".join(lines))


def refusal(file: str, line: int | None, message: str, path: str = "") -> ScenarioError:
    """Return the error of a single problem."""
    return ScenarioError([Problem(file, line, path, message)])


MAX_BYTES = 2**30
"""Maximum size of a file that is read at once, unless its reader has another bound."""


def bytes_of(path: Path, file: str, key: str = "", max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file.

    Args:
        path: The file.
        file: Its name in messages.
        key: Key of the scenario that names it.
        max_bytes: Bound of its size. No further bytes are read, so that an endless pipe is refused too.

    Raises:
        ScenarioError: It cannot be read, or has more than `max_bytes` bytes.
    """
    try:
        with path.open("rb") as stream:
            # One byte more than allowed shows that there is more. The size of a pipe is not known beforehand.
            content = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise refusal(file, None, f"cannot be read: {reason(error)}", key) from None
    if len(content) > max_bytes:
        raise refusal(file, None, f"has more than {max_bytes} bytes, too many to be read", key)
    return content


def text_of(path: Path, file: str, key: str = "", max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a file, as `bytes_of` reads it.

    Raises:
        ScenarioError: It cannot be read, is too long, or is not UTF-8.
    """
    try:
        # "-sig": editors on Windows begin files with a byte order mark.
        return bytes_of(path, file, key, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The line of the first bad byte.
        line = error.object[: error.start].count(b"\n") + 1
        raise refusal(file, line, "not UTF-8 text", key) from None


class RunFailed(RuntimeError):
    """A run that cannot continue; its text has the place and the reason."""


class DataPlaneError(RunFailed):
    """Real work failed."""


# A separate class, since `Saver.stop` keeps the saved rounds after it and drops them after other errors.
class ClusterFailed(DataPlaneError):
    """A cluster failed, and not the work: the run can continue later, there or elsewhere."""


class Diverged(ValueError):
    """A user's training whose update is not finite."""

    def __init__(self, user: int, index: int) -> None:
        remedy = "its update is not finite: use a smaller learning.lr, or learning.clip"
        super().__init__(f"training diverged: user {user}, round {index}: {remedy}")


def raised(error: BaseException, path: Path) -> str:
    """Return the message of an error that a file of a user's raised, with the line."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    # The last line within the file: the error may come from a library that it called.
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    location = f"{path}:{lines[-1]}" if lines else str(path)
    return f"{location} raised {type(error).__name__}: {error}"


def blame(error: BaseException) -> str | None:
    """Return the message of an error that an executed file of a user's raised; None for other errors."""
    # From the innermost frame: if one file of a user's calls another, that one is at fault.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).resolve() in executed_files:
            return raised(error, Path(frame.filename))
    # SimPy raises a process's error once more, with the original one as its cause.
    cause = error.__cause__
    return blame(cause) if type(cause) is type(error) and cause.args == error.args else None


def step_failed(where: tuple[object, ...], operation: str, error: BaseException) -> DataPlaneError:
    """Return the error of a step.

    Args:
        where: The step: protocol, round, party, call, what; empty outside of steps.
        operation: Name of the operation; empty if it is not known.
        error: The reason.
    """
    if isinstance(error, Diverged):  # it names its user and round, and no operation is at fault
        return DataPlaneError(": ".join([*map(str, where[:1]), str(error)]))
    step = "the simulator's own work"
    if where:
        name, index, party, call, what = where
        worker = "the server" if party == -1 else f"user {party}"
        step = f"{name}, round {index}, {worker}, {call} {what}".rstrip()
    # The class is kept: the report depends on it.
    kind = ClusterFailed if isinstance(error, ClusterFailed) else DataPlaneError
    return kind(": ".join(part for part in (step, operation, blame(error) or str(error)) if part))


class PeerFault(Exception):
    """A peer's message differs from an honest peer's.

    Args:
        user: The peer; negative for the server.
        why: Reason.

    >>> str(PeerFault(3, "malformed"))
    'user 3: malformed'
    """

    def __init__(self, user: int, why: str) -> None:
        super().__init__(f"user {user}: {why}" if user >= 0 else f"server: {why}")
        self.user, self.why = user, why
