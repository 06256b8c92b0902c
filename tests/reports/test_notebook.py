"""Bars in a notebook. IPython is stood in for by its two functions: a shell's class, and `display`."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import Any

import pytest

import simfl
from simfl.reports import notebook
from simfl.runs.simulation import Progress
from tests.engine.harness import SYNC


class Handle:
    """What `display(..., display_id=True)` returns; it keeps what is shown."""

    def __init__(self, shown: Any) -> None:
        self.pages = [shown._repr_html_()]

    def update(self, shown: Any) -> None:
        self.pages.append(shown._repr_html_())


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """A notebook around the test; what it displays."""
    made: list[Handle] = []

    def display(shown: Any, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle(shown))
        return made[-1]

    module: Any = ModuleType("IPython.display")
    module.display = display
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_a_run_shows_one_bar_a_protocol(handles: list[Handle]) -> None:
    two = {"payload": "shadow", "rounds": 3, "protocols": ["fedavg", "secagg"]}
    simfl.run(SYNC, two, watch=notebook.progress_bars())
    (handle,) = handles  # displayed once, then updated in place
    assert handle.pages[0].count("<progress ") == 1
    assert handle.pages[-1].count('<progress value="3" max="3">') == 2
    assert "secagg" in handle.pages[-1]


def test_updates_are_rare_and_the_last_is_shown(
    handles: list[Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now)
    bars = notebook.progress_bars()
    for done in range(1, 101):
        now += 0.01
        bars(Progress("fedavg", done, 100, 0.1 * done, None))
    assert 5 <= len(handles[0].pages) <= 7
    assert 'value="100"' in handles[0].pages[-1]


def test_a_name_is_escaped(handles: list[Handle]) -> None:
    notebook.progress_bars()(Progress("<b>", 1, 2, 0.5, 0.75))
    assert handles[0].pages == [handles[0].pages[0]]
    assert "&lt;b&gt;" in handles[0].pages[0]
    assert "accuracy 0.750" in handles[0].pages[0]


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    simfl.run(SYNC, {"payload": "shadow"}, watch=notebook.progress_bars())
    assert capsys.readouterr() == ("", "")


def test_as_text_for_a_notebook_without_a_browser() -> None:
    bars = notebook.Bars()
    bars._at["fedavg"] = Progress("fedavg", 1, 2, 0.5, None)
    assert repr(bars) == "fedavg: 1 of 2, 0.5 s of virtual time"
