"""`Result.plot`: the figures of `simfl report --figures`, from memory and from a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="simfl[figures] is not installed")

import simfl
from simfl.errors import BadInput
from simfl.reports.figures import catalogue
from simfl.reports.folder import open_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of two protocols and five users, with their training."""
    folder = tmp_path_factory.mktemp("run")
    simfl.run(protocols=["fedavg", "secagg"], users=5, rounds=2, out=folder)
    return folder


def test_plot_is_the_figure_of_the_report(folder: Path, tmp_path: Path) -> None:
    """The same bytes from the folder, and from the result that was never written."""
    figures = catalogue.of_run(open_folder(folder))
    assert {"timing", "breakdown", "accuracy"} <= figures.keys()
    loaded, fresh = simfl.load(folder), simfl.run(protocols=["fedavg", "secagg"], users=5, rounds=2)
    for kind in ("timing", "breakdown", "accuracy"):
        files = [
            (tmp_path / catalogue.save(tmp_path, {kind: figure}, ["svg"])[0]).read_bytes()
            for figure in (figures[kind], loaded.plot(kind), fresh.plot(kind))
        ]
        assert files[0] == files[1] == files[2]


def test_timing_is_drawn_unless_another_kind_is_named(folder: Path) -> None:
    titles = [panel.get_title("left") for panel in simfl.load(folder).plot().axes]
    assert titles == ["fedavg, round 1", "secagg, round 1"]


def test_notebook_shows_a_figure_as_a_picture(folder: Path) -> None:
    """IPython asks an object at the end of a cell for `_repr_png_`; 7 inches at 130 dots are 910 pixels."""
    png = simfl.load(folder).plot()._repr_png_()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20], "big") == 910


def test_time_of_a_live_run_is_real(folder: Path) -> None:
    """A live run leaves `live.json` beside its files, which `load` keeps."""
    result = simfl.load(folder)
    result.beside["live.json"] = "{}"
    assert result.plot().axes[-1].get_xlabel() == "real time (s)"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("timings", r"plot: kind must be one of breakdown, .*, not 'timings'; did you mean 'timing'\?"),
        ("staleness", "plot: staleness: this run has nothing to draw; it needs an asynchronous protocol"),
        ("participation", "participation: this run has nothing to draw; it needs a selection of some users"),
    ],
)
def test_plot_of_nothing_says_what_is_needed(folder: Path, kind: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        simfl.load(folder).plot(kind)


def test_without_matplotlib_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BadInput, match=r"plot needs matplotlib: pip install 'simfl\[figures\]'"):
        simfl.load(folder).plot()
