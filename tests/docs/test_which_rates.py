"""The page's decomposition: parts that add up, rounds that their sum meets, and the sentences on them."""

from __future__ import annotations

import re

import pytest

from docs.tools import which_rates
from docs.tools.which_rates import ALL, PAGE, RATES, Parts


def rows() -> dict[str, list[str]]:
    """Return the cells of each line of the table, by its first."""
    text = PAGE.read_text(encoding="utf-8").partition(which_rates.MARK)[2].partition("<!-- end -->")[0]
    lines = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {first: rest for first, *rest in lines if first}


def test_parts_add_up_to_the_change_of_the_lead() -> None:
    found = rows()
    lead = found.pop("LightSecAgg's lead")
    assert set(found) == set(RATES.values())
    for column, ends in ((2, lead[0]), (3, lead[3])):
        low, high = map(float, ends.split(" to "))
        assert sum(float(cells[column]) for cells in found.values()) == pytest.approx(high - low, abs=0.6)


def test_sentences_follow_from_the_table() -> None:
    found = rows()
    low, high = map(float, found["LightSecAgg's lead"][0].split(" to "))
    server = found["the server's speed"]
    assert float(server[2]) / (high - low) == pytest.approx(0.5, abs=0.03)
    assert f"{high - float(server[1]):.1f} s in place of {high:.1f}" in " ".join(PAGE.read_text().split())
    text = PAGE.read_text(encoding="utf-8")
    assert re.search(r"\]\(which_rates\.svg\)", text)
    assert (PAGE.parent / "which_rates.svg").is_file()


def test_orders_of_a_sum_with_a_product_by_hand() -> None:
    """x + 2 y + 4 x y: each of x and y has half of the product; a part without effect has none."""
    x, y, *_ = RATES

    def seconds(parts: Parts, name: str) -> float:
        has = [part in parts for part in (x, y)]
        return has[0] + 2 * has[1] + 4 * has[0] * has[1] if name == "secagg" else 0.0

    effects = which_rates.shapley(seconds, "secagg")  # type: ignore[arg-type]
    assert (effects[x], effects[y]) == (pytest.approx(3), pytest.approx(4))
    assert sum(effects.values()) == pytest.approx(seconds(ALL, "secagg"))


@pytest.mark.ci
def test_a_full_round_is_near_the_pages_end() -> None:
    seconds = which_rates.modelled(ALL)
    high = float(rows()["LightSecAgg's lead"][0].split(" to ")[1])
    assert seconds["secagg"] - seconds["lightsecagg"] == pytest.approx(high, rel=0.01)
