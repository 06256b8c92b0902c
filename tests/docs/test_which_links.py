"""docs/which_links.md says what its study says."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Any

import pytest

import simfl
from docs.tools.which_links import (
    BASE,
    CHANGES,
    COSTS,
    LINKS,
    PAGE,
    SHOWN,
    SLOWEST,
    TABLES,
    Point,
    Run,
    Runs,
    between,
    fastest,
    of_base,
    of_paths,
    perform,
    perform_one,
    plan,
    point,
    shown,
)
from simfl.runs.assumptions import assumed, masking
from simfl.runs.build import build
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.trace.rows import PHASES
from simfl.world import profiles

TEXT = PAGE.read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
PAPERS, FAST = COSTS.values()
G4, ALL_6, FEDSCALE = LINKS.values()
SECAGG_PLUS, LIGHTSECAGG = SHOWN

planned = cache(plan)

Cell = tuple[tuple[float, float], str]
"""The seconds of SecAgg+ and LightSecAgg, and the one of them that is in bold."""


def cell(text: str) -> Cell:
    both = text.split(" / ")
    bold = [name for name, one in zip(SHOWN, both, strict=True) if one.startswith("**")]
    first, second = (float(one.strip("*")) for one in both)
    return (first, second), next(iter(bold), "")


ROWS: dict[tuple[str, str], dict[str, Cell]] = {
    (cost, words): dict(zip(LINKS.values(), map(cell, cells), strict=True))
    for cost, words, *cells in shown("changes")
}
PATHS: dict[tuple[str, str, str], dict[str, float]] = {
    (cost, links, name): {
        column: float(text)
        for column, text in zip((*PHASES, "whole", "network", SLOWEST), cells, strict=True)
        if text
    }
    for cost, links, name, *cells in shown("paths")
}


def first_cell(cost: str, words: str = BASE, links: str = G4) -> Scenario:
    """A point of the study under its first seed."""
    study = planned()
    return next(c.scenario for c in study.cells if point(study, c.point) == (cost, words, links))


def with_links(scenario: Scenario, mbps: Any, seed: int = 7) -> Scenario:
    """The same with such rates for everybody."""
    plain = scenario.model_dump(mode="json")
    network = {"uplink_mbps": mbps, "downlink_mbps": mbps, "latency_s": 0.04}
    plain["population"]["classes"] = {"all": {"share": 1, "network": network}}
    return load(plain | {"seed": seed})


def one_over_slow_links(name: str) -> Run:
    """The run under the first seed."""
    return over_slow_links()[PAPERS, BASE, FEDSCALE][name][0]


def ahead(scenario: Scenario) -> float:
    """The seconds that SecAgg+ is ahead of LightSecAgg."""
    found = perform_one(scenario)
    return found[LIGHTSECAGG].seconds - found[SECAGG_PLUS].seconds


@pytest.mark.ci
def test_the_rows_are_the_points_of_the_study() -> None:
    study = planned()
    points = [point(study, number) for number in range(len(study.points))]
    assert points == list(product(COSTS.values(), CHANGES, LINKS.values()))
    assert list(ROWS) == list(product(COSTS.values(), CHANGES))
    always = {"profile", "population.classes", "population.devices.slowdown"}
    for (_, words, _), settings in zip(points, study.points, strict=True):
        assert settings.keys() - always == set(CHANGES[words])


@cache
def over_slow_links() -> dict[Point, Runs]:
    """The base at the paper's costs and over one kind of links, under all seeds."""
    return perform(planned(), product([PAPERS], [BASE], [FEDSCALE]))


@pytest.mark.ci
def test_the_base_is_what_the_study_gives() -> None:
    """Of one kind of links; the slow test has the rest."""
    found = over_slow_links()
    for name, make in (("base", of_base), ("paths", of_paths)):
        assert set(make(found).splitlines()) <= set(between(name)[2].splitlines())


@pytest.mark.slow
def test_all_of_it_is_what_the_study_gives() -> None:
    """Whole: two minutes of a core, or more."""
    found = perform(planned(), product(COSTS.values(), CHANGES, LINKS.values()))
    for name, make in TABLES.items():
        assert make(found) == between(name)[2]
    assert {fastest(runs) for runs in found.values()} == {"", *SHOWN}
    failing = {at: 3 - len(runs["ccesa"]) for at, runs in found.items() if len(runs["ccesa"]) < 3}
    assert failing == dict.fromkeys(product((PAPERS, FAST), ["60% are enough"], [FEDSCALE]), 2)
    held: dict[str, list[int]] = {}
    slow = 0
    for words in ("80% are enough", "80% are enough, the offline phase first"):
        for name, runs in found[PAPERS, words, FEDSCALE].items():
            held.setdefault(name, []).extend(run.updates.total() for run in runs)
        slow = max(slow, *(run.updates[SLOWEST] for run in found[PAPERS, words, FEDSCALE][LIGHTSECAGG]))
    light, plus = (f"{min(held[name])} to {max(held[name])}" for name in (LIGHTSECAGG, SECAGG_PLUS))
    sizes = f"at 80% LightSecAgg's aggregates hold {light} updates, SecAgg+'s {plus}"
    assert f"{sizes}, and LightSecAgg's at most {slow} from the slow quarter" in WORDS


def test_what_it_says_of_the_winners_is_so() -> None:
    winners = {at: [bold for _, bold in row.values()] for at, row in ROWS.items()}
    changed = [at for at, (first, _, last) in winners.items() if first and last and first != last]
    assert (len(changed), len(ROWS)) == (15, 32)
    assert {tuple(winners[at][::2]) for at in changed} == {(LIGHTSECAGG, SECAGG_PLUS)}
    undecided = [at for at, bold in winners.items() if "" in bold]
    assert {words for cost, words in undecided if cost == PAPERS} == {
        w for w in CHANGES if w[:2] in ("80", "60")
    }
    assert len(undecided) == 3
    same = [at for at, (first, _, last) in winners.items() if first == last]
    assert len(same) == 14
    assert {(FAST, SECAGG_PLUS)} == {(at[0], winners[at][0]) for at in same}
    median = {at: bold for at, (_, bold, _) in winners.items()}
    assert [at for at in median if at[0] == PAPERS and median[at] != LIGHTSECAGG] == [(PAPERS, "T = 40")]


def test_what_it_says_of_fast_masks_is_so() -> None:
    on_4g = {words: ROWS[FAST, words][G4] for words in CHANGES}
    leads = {words: a - b for words, ((a, b), bold) in on_4g.items() if bold == LIGHTSECAGG}
    assert set(leads) == {"devices differ", "D = 20"}
    assert f"its lead is {max(leads.values()):.2f} s at most" in WORDS
    assert on_4g[BASE][1] == SECAGG_PLUS


def test_its_sentences_have_the_numbers_of_its_paths() -> None:
    on_4g, slow = ({name: PATHS[PAPERS, links, name] for name in SHOWN} for links in (G4, FEDSCALE))
    plus, light = on_4g.values()
    assert f"SecAgg+'s server spends {plus['recovery']} s in recovery" in WORDS
    assert f"LightSecAgg's {light['recovery']} s. The network takes {plus['network']} and" in WORDS
    for name, words in ((LIGHTSECAGG, "from {} to {} s, SecAgg+'s"), (SECAGG_PLUS, "from {} to {} s. A")):
        assert words.format(on_4g[name]["offline"], slow[name]["offline"]) in WORDS
    plus, light = slow.values()
    assert f"{light[SLOWEST]} of LightSecAgg's {light['whole']} s" in WORDS
    assert f"{plus[SLOWEST]} of SecAgg+'s {plus['whole']} s" in WORDS
    assert f"SecAgg+'s recovery takes {PATHS[FAST, FEDSCALE, SECAGG_PLUS]['recovery']} s" in WORDS


@pytest.mark.ci
def test_the_model_is_what_secagg_pluss_keys_queue_behind() -> None:
    """Keys and shares of some kB are on the way for as long as the slowest user downloads the model."""
    slow = first_cell(PAPERS, BASE, FEDSCALE)
    found = one_over_slow_links(SECAGG_PLUS).share(phase="offline", kind="network")
    built = build(slow)
    model_s = 32 * assumed(built).d / 1e6 / built.people.down_mbps.min()
    assert found == pytest.approx(model_s, rel=0.03)
    assert 1 < built.people.up_mbps.min() < 1.2  # "little more than 1"
    assert "SecAgg+'s 35.6 s on the network there are the model's download" in WORDS


@pytest.mark.ci
def test_a_summary_has_the_path_by_class() -> None:
    slow = first_cell(PAPERS, BASE, FEDSCALE)
    found = simfl.run(slow).summary["protocols"][LIGHTSECAGG]["classes"][SLOWEST]["waited_s"]
    assert sum(found.values()) == pytest.approx(one_over_slow_links(LIGHTSECAGG).share(who=SLOWEST))
    assert "as `waited_s`" in TEXT


@pytest.mark.ci
def test_what_a_sharing_costs_is_so() -> None:
    seconds = profiles.load(first_cell(PAPERS).profile).seconds["sharing"]
    assert f"pay {seconds} s for one sharing" in WORDS


@pytest.mark.ci
def test_the_lead_is_lost_where_it_says() -> None:
    base = first_cell(PAPERS)
    assert ahead(with_links(base, 4)) < 0 < ahead(with_links(base, 3))


@pytest.mark.slow
def test_another_slow_tail_gives_the_same_order() -> None:
    """The log-normal distribution with a median of 6 and a quarter below 3."""
    sigma = math.log(6 / 3) / -NormalDist().inv_cdf(0.25)
    assert f"{NormalDist(math.log(6), sigma).cdf(0):.0%} are below 1 Mbit/s" in TEXT
    base, rates = first_cell(PAPERS), {"kind": "lognormal", "median": 6, "sigma": round(sigma, 3)}
    found = [ahead(with_links(base, rates, seed)) for seed in (7, 8, 9)]
    assert f"ahead by {min(found):.0f} to {max(found):.0f} s" in TEXT


@pytest.mark.ci
def test_what_it_says_of_shares_is_so() -> None:
    models = {}
    for words in (BASE, "D = 20", "T = 40"):
        built = build(first_cell(PAPERS, words))
        d = assumed(built).d
        each = {name: found.shares_bytes / 100 for name, found in masking(built).items()}
        models[words] = each[LIGHTSECAGG] / (4 * d)
        if words == BASE:
            own = f"sends {each[LIGHTSECAGG] / 1e6:.1f} MB of coded shares, {models[words]:.1f} models"
            assert own in WORDS
            assert f"user sends {each[SECAGG_PLUS] / 1e3:.1f} kB" in WORDS
            assert f"d = {d:,}" in TEXT
    assert (
        f"With D = 20 they are {models['D = 20']:.1f} models, with T = 40 they are {models['T = 40']:.0f}"
        in TEXT
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    ("cost", "words"), [*product((PAPERS, FAST), [w for w in CHANGES if w[:3] == "d ="])]
)
def test_its_sizes_of_models_are_those_of_the_study(cost: str, words: str) -> None:
    assert words == f"d = {assumed(build(first_cell(cost, words))).d:,}"


@pytest.mark.ci
def test_the_study_has_as_many_cells_as_it_says() -> None:
    assert f"{len(planned().cells)} cells" in TEXT
