"""Figures: what is drawn is what the run has, read from the artists; files are the same each time."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="simfl[figures] is not installed")

import matplotlib
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from simfl.cli import main
from simfl.reports import chart
from simfl.reports.figures import catalogue, run_figures, timing
from simfl.reports.figures.style import COLUMN, WIDE, pale
from simfl.reports.folder import Run
from simfl.reports.trace_series import Span
from simfl.runs.folder.outdated import outdated_files
from simfl.runs.results import units
from simfl.trace.rows import CHECK_IN, PHASES, SERVER, Aggregated, End, Sent, Step, Trace
from tests.engine.harness import FILES, SIX, run
from tests.reports.conftest import changed, opened
from tests.reports.drawn import axes_of, covered, drawn_bars, texts
from tests.reports.test_latex import SHADOW

NS = 10**9


def made(folder: Path, **overrides: Any) -> Run:
    """A small run in which nothing is executed."""
    run({**SIX, **SHADOW, **overrides}, out=folder)
    return opened(folder)


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four rounds at two drop-out rates in turn, users of different speed."""
    slow = {"kind": "uniform", "low": 8.0, "high": 16.0}
    more = {"rounds": 4, "dropout.rate": [0.0, 0.2], "population.devices.slowdown": slow}
    return made(tmp_path_factory.mktemp("rates"), **more)


@pytest.fixture(scope="module")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six rounds of two of six users, selected in two ways; a third protocol selects all."""
    privacy = {"T": 1, "D": 0, "U": 2}
    how = {
        "any": {"protocol": "fedavg", "selection": {"random": 2}},
        "pairs": {"protocol": "lightsecagg", "selection": {"kind": "multi_round", "users": 2, "T": 2}},
        "all": {"protocol": "fedavg"},
    }
    return made(tmp_path_factory.mktemp("choosing"), rounds=6, protocols=how, privacy=privacy)


# --- the breakdown -------------------------------------------------------------------------------
@pytest.mark.ci
def test_bars_are_the_mean_critical_path_and_add_up_to_the_round(rates: Run) -> None:
    (axes,) = axes_of(run_figures.breakdown(rates))
    expected = []
    for entry in rates.summary.protocols.values():
        for rate in (0.0, 0.2):
            rounds = [r for r in entry.rounds if r.dropout_rate == rate]
            parts = [statistics.fmean(r.critical_s[phase] for r in rounds) for phase in PHASES]
            expected.append((parts, statistics.fmean(r.end_s - r.start_s for r in rounds)))
    assert len(axes.containers) == len(PHASES)
    for number, (parts, total) in enumerate(expected):
        drawn = [container[number] for container in axes.containers]
        assert [patch.get_width() for patch in drawn] == pytest.approx(parts)
        assert [patch.get_x() for patch in drawn] == pytest.approx([sum(parts[:k]) for k in range(4)])
        assert drawn[-1].get_x() + drawn[-1].get_width() == pytest.approx(total)
        assert [to_hex(patch.get_facecolor()).upper() for patch in drawn] == list(chart.PHASE_COLOUR.values())
        assert float(axes.texts[number].get_text()) == pytest.approx(total, rel=5e-3)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "fedavg  0% lost", "20% lost", "secagg  0% lost", "20% lost", "lightsecagg  0% lost", "20% lost",
    ]  # fmt: skip


@pytest.mark.ci
def test_bars_begin_with_the_wait_for_check_ins(tmp_path: Path) -> None:
    """The wait is drawn before the phases, the parts add up to the round, and the legend names it."""
    waiting = made(tmp_path, **{"check_in.every_s": 300, "check_in.within_s": 600})
    figure = run_figures.breakdown(waiting)
    (axes,) = axes_of(figure)
    labels = [container.get_label() for container in axes.containers]
    assert labels == [CHECK_IN, *PHASES]
    for number, entry in enumerate(waiting.summary.protocols.values()):
        (r,) = entry.rounds
        widths = [container[number].get_width() for container in axes.containers]
        assert widths[0] == pytest.approx(r.check_in_s)
        assert widths[0] > 0
        assert sum(widths) == pytest.approx(r.end_s - r.start_s)
    assert figure is not None
    assert CHECK_IN in [text.get_text() for text in figure.legends[0].get_texts()]


def test_bars_of_aggregations_share_the_whole_run_out(buffered: Run) -> None:
    (axes,) = axes_of(run_figures.breakdown(buffered))
    for number, trace in enumerate(buffered.traces.values()):
        ends = [row for row in trace if isinstance(row, End)]
        whole = (ends[-1].at - ends[0].start) / NS / len(ends)
        assert sum(container[number].get_width() for container in axes.containers) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.63, "0.630"), (1.5, "1.50"), (12.34, "12.3"), (123.4, "123"), (0.0, "0.000")]
)
def test_totals_have_three_figures(value: float, shown: str) -> None:
    assert units.three_figures(value) == shown


# --- the timing diagram --------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("which", ["rates", "buffered"])
def test_the_timing_is_that_of_the_trace(
    which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 301 moments: each party is seen in a phase if and only if a row of the trace has it there."""
    monkeypatch.setattr(timing, "MIN_PAUSE_PART", 10**15)
    some: Run = request.getfixturevalue(which)
    (figure,) = timing.timing(some)
    for axes, diagram in zip(figure.axes, timing.diagrams(some), strict=True):
        bars = list(drawn_bars(axes))
        for place, party in enumerate(diagram.cast.values()):
            for phase in PHASES:
                for link in (False, True):
                    rows = list(spans_of(some, diagram, party, phase, link))
                    colour = to_hex(pale(chart.PHASE_COLOUR[phase]) if link else chart.PHASE_COLOUR[phase])
                    seen = [(a, b) for y, c, a, b in bars if abs(y - place) < 0.5 and c == colour]
                    for k in range(301):
                        at = (diagram.end - diagram.start) / NS * (k + 0.5) / 301
                        assert covered(seen, at) == covered(rows, at), (party, phase, link, at)


def spans_of(
    some: Run, diagram: timing.Diagram, party: int, phase: str, link: bool
) -> Iterator[tuple[float, float]]:
    """Seconds of a diagram, of the rows of the whole trace."""
    for row in some.traces[diagram.protocol]:
        if link and isinstance(row, Sent) and row.arrived is not None and row.phase == phase:
            if party in (row.sender, row.to) and party != SERVER:
                yield (row.sent - diagram.start) / NS, (row.arrived - diagram.start) / NS
        elif not link and isinstance(row, Step) and row.party == party:
            at = row.start
            for name, ns in row.segments:
                if name == phase:
                    yield (at - diagram.start) / NS, (at + ns - diagram.start) / NS
                at += ns


def test_a_round_of_all_with_its_fastest_and_slowest(losing: Run, rates: Run) -> None:
    assert {diagram.round for diagram in timing.diagrams(losing)} <= {0, 1}
    chosen = timing.diagrams(rates)
    assert len({diagram.round for diagram in chosen}) == 1
    for diagram in chosen:
        arrived = {
            row.sender: row.arrived
            for row in rates.traces[diagram.protocol]
            if isinstance(row, Sent) and (row.round, row.kind) == (diagram.round, "upload") and row.arrived
        }
        order = sorted(arrived, key=lambda user: arrived[user])
        assert diagram.cast == {
            "server": SERVER, "fastest user": order[0], "median user": order[len(order) // 2],
            "slowest user": order[-1],
        }  # fmt: skip


def test_an_aggregation_starts_with_its_users_cycles(buffered: Run) -> None:
    for diagram in timing.diagrams(buffered):
        trace = buffered.traces[diagram.protocol]
        (row,) = (r for r in trace if isinstance(r, Aggregated) and r.round == diagram.round)
        assert diagram.round == len(buffered.rounds[diagram.protocol]) // 2
        names = {about: user for user, about, _ in row.members}
        assert set(diagram.cast.values()) - {SERVER} <= set(names.values())
        starts = {names[r.about]: r.sent for r in reversed(trace) if isinstance(r, Sent) and r.about in names}
        begin = next(r.start for r in trace if isinstance(r, End) and r.round == diagram.round)
        assert diagram.start == min(begin, *(starts[u] for u in diagram.cast.values() if u != SERVER))


def test_a_step_of_two_phases_is_two_bars() -> None:
    segments = (("training", 10), ("upload", 25))
    step = Step(0, 1, "protocol", "submit", "", "", -1, -1, 100, 100, 135, segments)
    found = list(timing._bars([step], {1}, 103, 130))
    assert [(bar.phase, bar.start, bar.end) for bar in found] == [
        ("training", 103, 110),
        ("upload", 110, 130),
    ]


def test_bars_that_nearly_touch_are_one() -> None:
    def bar(start: int, end: int, phase: str = "upload") -> Span:
        return Span(1, "protocol", phase, start, end)

    merged = timing._merged([bar(20, 25), bar(0, 10), bar(12, 14), bar(3, 5), bar(14, 15, "offline")], 2)
    assert merged == [bar(14, 15, "offline"), bar(0, 14), bar(20, 25)]


@pytest.mark.ci
def test_many_protocols_make_several_figures(tmp_path: Path) -> None:
    names = {f"p{k}": {"protocol": "fedavg"} for k in range(8)}
    parts = timing.timing(made(tmp_path, protocols=names))
    assert [len(figure.axes) for figure in parts] == [6, 2]
    assert len({figure.axes[-1].get_xlim() for figure in parts}) == 1


# --- learning and taking part --------------------------------------------------------------------
def test_accuracy_against_time_and_rounds(losing: Run) -> None:
    by_time, by_round = axes_of(run_figures.accuracy(losing))
    for number, entry in enumerate(losing.summary.protocols.values()):
        known = [r for r in entry.rounds if r.accuracy is not None]
        for axes, at in ((by_time, [r.end_s for r in known]), (by_round, [r.index + 1 for r in known])):
            assert list(axes.lines[number].get_xdata()) == at
            assert list(axes.lines[number].get_ydata()) == [r.accuracy for r in known]


def test_the_histogram_has_the_counts_of_the_summary(buffered: Run) -> None:
    for axes, entry in zip(
        axes_of(run_figures.staleness(buffered)), buffered.summary.protocols.values(), strict=True
    ):
        found = {round(p.get_x() + p.get_width() / 2): p.get_height() for p in axes.patches}
        assert {str(tau): count for tau, count in found.items() if count} == entry.staleness


@pytest.mark.ci
def test_privacy_fairness_and_cardinality_of_selected_users(choosing: Run) -> None:
    panels = axes_of(run_figures.participation(choosing))
    for number, name in enumerate(("any", "pairs")):
        shares = choosing.summary.protocols[name].participation
        assert shares is not None
        lows = [math.nan if T is None else T[0] for T in shares.T_weak]
        for axes, values in zip(panels, (lows, shares.F, shares.C), strict=True):
            assert list(axes.lines[number].get_xdata()) == [1, 2, 3, 4, 5, 6]
            assert list(axes.lines[number].get_ydata()) == pytest.approx(values, nan_ok=True)
    assert {len(axes.lines) for axes in panels} == {2}


def test_where_T_is_an_interval_it_is_shaded() -> None:
    figure = Figure()
    axes = figure.subplots()
    run_figures._privacy(axes, range(1, 4), [None, [2, 5], [2, 2]], {"color": "black"})
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == (2, 5)


@pytest.mark.ci
def test_a_run_has_the_figures_for_which_it_has_data(
    rates: Run, losing: Run, buffered: Run, choosing: Run
) -> None:
    assert set(catalogue.of_run(rates)) == {"breakdown", "timing"}
    assert set(catalogue.of_run(losing)) == {"breakdown", "timing", "accuracy"}
    assert set(catalogue.of_run(buffered)) == {"breakdown", "timing", "accuracy", "staleness"}
    assert set(catalogue.of_run(choosing)) == {"breakdown", "timing", "participation"}
    nothing = changed(losing, "fedavg", rounds=[], participation=None)
    empty = replace(nothing, traces={"fedavg": Trace()}, rounds={"fedavg": []})
    assert catalogue.of_run(empty) == {}


# --- the files -----------------------------------------------------------------------------------


@pytest.mark.ci
def test_the_same_run_gives_the_same_bytes_whatever_the_settings(losing: Run, tmp_path: Path) -> None:
    def save(name: str) -> None:
        figures = catalogue.of_run(losing)
        catalogue.save(tmp_path / name, figures, ["svg"])
        catalogue.save(tmp_path / name, {"breakdown": figures["breakdown"]}, ["png"])

    save("a")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.facecolor": "red"}):
        save("b")
        assert matplotlib.rcParams["font.size"] == 20
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 4
    for name in names:
        content = (tmp_path / "a" / name).read_bytes()
        assert content == (tmp_path / "b" / name).read_bytes()
        assert b"<dc:date>" not in content


@pytest.mark.ci
def test_the_command_writes_figures_whose_text_is_text(tmp_path: Path) -> None:
    made(tmp_path, rounds=1)
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path), "--figures"])
    assert left.value.code == 0
    inches = {"breakdown": COLUMN, "timing": WIDE}
    folder = tmp_path / "figures"
    assert {path.name for path in folder.iterdir()} == {
        f"{n}.{kind}" for n in inches for kind in ("svg", "png")
    }
    for name, width in inches.items():
        png = (folder / f"{name}.png").read_bytes()
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(png[16:20]) == pytest.approx(200 * width, abs=1)
    said = texts((folder / "breakdown.svg").read_bytes())
    for text in ("critical path (seconds of virtual time per aggregate)", "lightsecagg", *PHASES):
        assert text in said
    said = texts((folder / "timing.svg").read_bytes())
    for text in (
        "virtual time (s)",
        "secagg, round 0",
        "server",
        "computing",
        "on its link",
        "end of the round",
        *PHASES,
    ):
        assert text in said


@pytest.mark.ci
def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    names = ["x_1-2.0", "_hidden"]
    some = made(tmp_path, protocols={name: {"protocol": "fedavg"} for name in names}, selection={"random": 2})
    catalogue.save(tmp_path / "figures", catalogue.of_run(some), ["svg"])
    for path in (tmp_path / "figures").glob("*.svg"):
        assert all(name in texts(path.read_bytes()) for name in names), path.name


def test_without_matplotlib_figures_are_refused_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path, rounds=1)
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "simfl.reports.figures"))]:
        monkeypatch.delitem(sys.modules, name)
        if name.startswith("matplotlib"):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path), "--figures"])
    assert left.value.code == 2
    assert "simfl[figures]" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == FILES
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path)])
    assert left.value.code == 0


@pytest.mark.ci
def test_a_new_run_knows_the_names_of_all_figures(rates: Run, choosing: Run, tmp_path: Path) -> None:
    """It removes those of the run before it."""
    names = {f"{name}.svg" for some in (rates, choosing) for name in catalogue.of_run(some)}
    (tmp_path / "summary.json").touch()
    (tmp_path / "figures").mkdir()
    for name in names:
        (tmp_path / "figures" / name).touch()
    assert {path.name for path in outdated_files(tmp_path)} == names
    assert len(names) >= 3
