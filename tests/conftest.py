"""What all tests share: a folder of their own for measurements of this machine, Ctrl-C, and a folder to
follow a page of the documentation in."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.docs.shell import Shell

os.environ["SIMFL_CACHE"] = tempfile.mkdtemp(prefix="simfl-cache-")

# A job in a shell's background ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a stage of a check lasts: no test is to read of that unasked."""
    monkeypatch.setattr("simfl.cli.stages.PATIENCE_S", 60.0)
