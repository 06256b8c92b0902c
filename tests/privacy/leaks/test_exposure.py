"""The table of who could learn what, and its figure."""

import re
from dataclasses import replace

import pytest

from simfl.privacy.leaks.coalitions import coalitions_of
from simfl.privacy.leaks.exposure import exposure
from simfl.studies.explore.cohort import Fate
from simfl.studies.proof.cases import Case
from simfl.studies.proof.patterns import make_small
from tests.privacy.leaks.faults import OneKeyForAll, plant

NOBODY = Case((None,) * 4, "timeout")


def table(small, case, *coalitions):
    return exposure(small.replay(case), coalitions)


def test_up_to_the_threshold_there_is_the_sum_alone() -> None:
    small = make_small("lightsecagg", 4, changes={"U": 4})
    alone, one, two = table(small, NOBODY, (), (1,), (1, 2))
    assert alone.exposing == dict.fromkeys(range(4))
    assert alone.summed == {0, 1, 2, 3}
    assert one.exposing == dict.fromkeys((0, 2, 3))
    assert two.exposing == {0: {0}, 3: {3}}


def test_a_user_lost_before_its_upload_is_in_no_sum() -> None:
    lost = Case((Fate("upload", "before_send"), None, None, None), "timeout")
    (alone,) = table(make_small("lightsecagg", 4, changes={"U": 3}), lost, ())
    assert alone.summed == {1, 2, 3}


def test_a_late_upload_of_a_key_for_all_is_known_alone() -> None:
    small = make_small("secagg", 4, changes={"t": 3})
    small.cohort.__dict__["short"] = replace(small.setup, kind=plant(small.setup.kind, OneKeyForAll))
    late = Case((Fate("upload", "delay", 1.0), None, None, None), "timeout")
    (alone,) = table(small, late, ())
    assert alone.exposing[0] == {0}


@pytest.mark.ci
def test_the_figure_has_a_word_in_each_cell(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib")
    from simfl.privacy.leaks.exposure import exposure_figure
    from simfl.reports.figures.catalogue import save

    small = make_small("lightsecagg", 4, changes={"U": 4})
    coalitions = [one for some in coalitions_of(4, range(3)).values() for one in some]
    figure = exposure_figure(table(small, NOBODY, *coalitions), range(4), "title")
    save(tmp_path, {"f": figure}, ["svg"])
    words = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "f.svg").read_text())
    assert words.count("alone") == 6 * 2
    assert words.count("sum only") == 4 + 4 * 3
    assert words.count("colludes") == 4 + 6 * 2
    assert {"server", "server + 1 + 2", "user 3", "title"} <= set(words)
