"""The figure of a sweep: means, intervals, and an axis that varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.cli import main
from simfl.errors import BadInput
from simfl.studies.sweep import figures
from simfl.studies.sweep.figures import Total, of_sweep
from tests.reports.drawn import axes_of
from tests.studies.sweep.small import study


# --- sweeps --------------------------------------------------------------------------------------
@pytest.mark.ci
def test_a_sweep_has_its_means_and_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The interval of two values is ±12.706 (t of 1 degree of freedom) times half their distance."""
    grid = {"population.users": [6, 7, 8], "dropout.rate": [0.0, 0.2]}
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(study(tmp_path, grid=grid)), "--out", str(out), "--jobs", "1"])
    assert left.value.code == 0
    values: dict[tuple[str, str, str], list[float]] = {}
    for line in (out / "sweep.csv").read_text().splitlines()[1:]:
        _, users, rate, _, _, protocol, measure, _, value = line.split(",")
        if measure == "total_s":
            values.setdefault((rate, protocol, users), []).append(float(value))
    panels = axes_of(figures.total(figures.read(out / "means.csv")))
    assert [axes.get_title() for axes in panels] == ["0 % lost", "20 % lost"]
    for axes, rate in zip(panels, ("0.0", "0.2"), strict=True):
        for drawn, protocol in zip(axes.containers, ("fedavg", "lightsecagg"), strict=True):
            line, _, (bars,) = drawn.lines
            assert list(line.get_xdata()) == [6, 7, 8]
            for k, users in enumerate("678"):
                a, b = values[rate, protocol, users]
                low, high = bars.get_segments()[k][:, 1]
                assert line.get_ydata()[k] == pytest.approx((a + b) / 2)
                assert high - low == pytest.approx(12.706 * abs(a - b), rel=1e-4)
    with pytest.raises(SystemExit) as left:
        main(["report", str(out), "--figures"])
    assert left.value.code == 0
    assert {path.name for path in (out / "figures").iterdir()} == {"total.svg", "total.png"}
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(["report", str(out)])
    assert left.value.code == 2
    assert "--figures" in capsys.readouterr().err


def totals(*points: dict[str, Any]) -> list[Total]:
    return [Total(point, "p", float(k), 0.0) for k, point in enumerate(points)]


def test_of_no_panel_anything_is_cut_off() -> None:
    points = [{"population.users": users, "dropout.rate": rate} for rate in (0.0, 0.2) for users in (6, 9)]
    values = [Total(point, "p", 1 + 40 * point["dropout.rate"], 0.5) for point in points]
    for axes in axes_of(figures.total(values)):
        low, high = axes.get_ylim()
        assert low == 0
        assert high >= axes.dataLim.ymax == pytest.approx(axes.dataLim.ymin + 1)


def test_varied_keys_make_the_axis_and_the_panels() -> None:
    def at(users: int, T: int, rate: float = 0.1, model: str = "cnn") -> dict[str, Any]:
        return {"learning.model": model, "dropout.rate": rate, "population.users": users, "privacy": {"T": T}}

    across, found = figures.series(totals(at(50, 5), at(25, 2), at(25, 2, 0.3), at(25, 2, 0.1, "lr")))
    assert across == "population.users"
    assert found == {
        "cnn, 10 % lost": {"p": [(25, 1.0, 0.0), (50, 0.0, 0.0)]},
        "cnn, 30 % lost": {"p": [(25, 2.0, 0.0)]},
        "lr, 10 % lost": {"p": [(25, 3.0, 0.0)]},
    }
    across, found = figures.series(totals(at(25, 2), at(25, 5), at(50, 2)))
    assert {len(lines["p"]) for lines in found.values()} == {1, 2}
    assert all("privacy" in name for name in found)
    assert figures.series(totals({"a": "x", "b": 1}, {"a": "y", "b": 2}))[0] == "b"
    with pytest.raises(BadInput, match="no number varies"):
        figures.series(totals({"a": "x", "b": 1}, {"a": "y", "b": 1}))


@pytest.mark.parametrize(
    "text", ["", "point,measure\n0,total_s\n", "\x00", "mean,measure,protocol\nx,total_s,p\n"]
)
def test_another_file_than_a_table_of_means_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "means.csv").write_text(text)
    with pytest.raises(BadInput, match=r"means\.csv|no number varies"):
        of_sweep(tmp_path)
