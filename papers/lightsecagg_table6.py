"""LightSecAgg Table 6: randomness and storage of Zhao and Sun's scheme and of LightSecAgg.

The paper compares by formulas. Here the formulas stand beside a count of symbols that were really
generated and dealt out (`zhao_sun`), for each N that this can be done for.
"""

from __future__ import annotations

from papers import zhao_sun
from papers.entry import Basis, Cell, Chart, Entry, Evidence, Line, Place

BASIS: Basis = "by construction"
"""Of all cells: the schemes are made by the rules that the formulas count."""

GENERATED = 8
"""The largest N for which the randomness is really made."""

SHOWN = (4, 6, 8, 10, 20, 50, 100, 200)
"""The N of the chart."""

FORMULAS = {
    "Zhao and Sun, randomness": zhao_sun.randomness,
    "Zhao and Sun, storage a user": zhao_sun.storage,
    "LightSecAgg, randomness": zhao_sun.lightsecagg_randomness,
    "LightSecAgg, storage a user": zhao_sun.lightsecagg_storage,
}


def parameters(N: int) -> tuple[int, int]:
    """T = N / 2 rounded down, U = 0.7 N rounded up: the paper's setting, with T < U <= N."""
    return N // 2, -(-7 * N // 10)


def run(place: Place) -> Evidence:
    """Generated symbols against the formulas for N <= 8; the formulas beyond."""
    cells = []
    for N in range(3, GENERATED + 1):
        T, U = parameters(N)
        words = f"N = {N}, T = {T}, U = {U}"
        dealt = zhao_sun.deal(N, U, T, ENTRY.seed)
        drawn, stored = zhao_sun.share_lightsecagg(N, U, T, ENTRY.seed)
        made = (dealt.drawn, dealt.stored, drawn, stored)
        for (name, formula), ours in zip(FORMULAS.items(), made, strict=True):
            cells.append(Cell(f"{name}, {words}", formula(N, U, T), ours, "symbols", bound=0.0, basis=BASIS))
    lines = tuple(
        Line(name, tuple(map(float, SHOWN)), tuple(float(f(N, *reversed(parameters(N)))) for N in SHOWN))
        for name, f in FORMULAS.items()
    )
    title = "Randomness and storage, T = N / 2, U = 0.7 N"
    chart = Chart(title, "users N", "symbols of d / (U - T) elements", lines, log_x=10, log_y=10)
    return Evidence(tuple(cells), (chart,))


ENTRY = Entry(
    name="lightsecagg_table6",
    paper="LightSecAgg",
    where="Table 6, App. C",
    title="Randomness and offline storage beside Zhao and Sun's scheme",
    on="generated randomness for N <= 8, the formulas beyond",
    how="The paper's column is its formula; ours counts the symbols that are generated and that a user"
    " holds.",
    run=run,
)
