"""docs/reproduction.md and a page of each paper, from the stored results: the papers' figures beside ours.

Invariant: every figure of ours is read from a stored result. The weakest results come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from papers.entry import Cell, Place
from papers.limits import LEFT_OUT, LIMITS
from papers.paper_page import BASES, Results, close, counts, file_name, missed, paper_page, table, took
from papers.scatter import compared, scatter

SEEDS = ("LightSecAgg", "CCESA", "Multi-RoundSecAgg")
"""The papers that simfl was made for; other results are counted apart."""
HEAD = """\
# The papers' tables and figures, run again

How well do simfl's figures agree with those that papers print? {sentence}

![Our numbers against the papers' numbers: the diagonal, and their ratios]({picture})

The picture has {shown} numbers: predicted ones, and those of fits (hollow). It leaves out orders of schemes,
limits, and cells that agree by construction. `simfl reproduce --page` writes these pages from the
results stored in `docs/reproduction/`. In a checkout, `simfl reproduce NAME` runs an entry again and stores
its result.
"""
CLASSES = """\

**By construction**: the same formula on both sides, a sum or an order that follows from other cells, a limit
that holds before anything is run, or an effect of the entry itself. It shows that nothing is broken.
**Fitted**: the paper's value was used to set a parameter. **Predicted**: it was not. Beside these, {others}
values are shown and not judged.

## By paper, the largest share of misses first

The three classes count the cells that keep the bound set for them, or the order or fact that the paper
states; *within 15 %* those that compare two numbers, printed or given by the paper's formula. A cell *misses*
if it is beyond its bound, in another order than the paper states, or more than 15 % from the paper's number.
"""
WEAK = """\

## Weak results

The main limit of each entry, the weakest first. Each link leads to all of its limits.
"""


def pages(results: Results, place: Place) -> dict[Path, str]:
    """Return the text of each file: the overview, the papers' pages, and the overview's picture."""
    by_paper: dict[str, Results] = {}
    for entry, stored in results:
        by_paper[entry.paper] = [*by_paper.get(entry.paper, ()), (entry, stored)]
    own = {place.results / file_name(paper): paper_page(of, place) for paper, of in by_paper.items()}
    picture = place.page.with_suffix(".svg")
    drawn = scatter([(paper, _cells(of)) for paper, of in by_paper.items()])
    return {place.page: _overview(results, by_paper, picture.name), **own, picture: drawn}


def _overview(results: Results, by_paper: dict[str, Results], picture: str) -> str:
    cells = _cells(results)
    shown = sum(cell.agrees is None for cell in cells)
    apart = [paper for paper in by_paper if paper not in SEEDS]
    seeds = [cell for paper, of in by_paper.items() if paper in SEEDS for cell in _cells(of)]
    others = [cell for paper in apart for cell in _cells(by_paper[paper])]

    def share(paper: str) -> float:
        judged = [missed(cell) for cell in _cells(by_paper[paper]) if cell.agrees is not None]
        return sum(judged) / max(len(judged), 1)

    head = ("paper", "entries", *BASES, "within 15 %", "worst difference", "misses", "CPU time")
    return "\n".join(
        [
            HEAD.format(
                sentence=_sentence(seeds, others, apart), picture=picture, shown=len(compared(cells))
            ),
            *_classes({"": seeds, ", other papers": others}),
            CLASSES.format(others=shown),
            *table(
                head, (_paper(paper, by_paper[paper]) for paper in sorted(by_paper, key=share, reverse=True))
            ),
            WEAK,
            *_limits(results),
            "\n## Left out, and why\n",
            *table(("paper", "what", "why"), LEFT_OUT),
            "",
        ]
    )


def _sentence(seeds: Sequence[Cell], others: Sequence[Cell], papers: Sequence[str]) -> str:
    """State the share of predicted cells that agree, the papers that simfl was made for apart."""
    counted = []
    for cells in (seeds, others):
        judged = [cell.agrees for cell in cells if cell.basis == "predicted" and cell.agrees is not None]
        counted.append(f"{sum(judged)} of {len(judged)} ({sum(judged) / max(len(judged), 1):.0%})")
    first = f"Of the cells of {_listed(SEEDS)} that were predicted, {counted[0]} agree."
    return f"{first} Counted apart, of {_listed(papers)}: {counted[1]}." if papers else first


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def first_sentence(text: str) -> str:
    """Return the first sentence of a limit.

    >>> first_sentence("One seed, q = 0.5. And more.")
    'One seed, q = 0.5.'
    """
    return text.partition(". ")[0].rstrip(".") + "."


def _classes(groups: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """Count the cells that agree and that do not, by the worth of an agreement in ascending order."""
    rows = []
    for words, cells in groups.items():
        judged = [(cell.basis, cell.agrees) for cell in cells if cell.agrees is not None]
        for basis in BASES:
            each = [agrees for other, agrees in judged if other == basis]
            if each:
                rows.append((basis + words, str(len(each)), str(sum(each)), str(len(each) - sum(each))))
    return table(("class", "cells judged", "agree", "disagree"), rows)


def _limits(results: Results) -> Iterator[str]:
    found = {entry.name: (entry, stored) for entry, stored in results}
    for name, text in LIMITS.items():
        if name in found:
            entry, stored = found[name]
            counted = close(stored.evidence.cells)
            counted = f" {counted} numbers within 15 %." if counted else ""
            where = f"reproduction/{file_name(entry.paper)}#{name}"
            yield f"- **[{entry.paper} {entry.where}]({where})**: {first_sentence(text)}{counted}"


def _paper(paper: str, results: Results) -> tuple[str, ...]:
    cells = _cells(results)
    page = f"reproduction/{file_name(paper)}"
    missing = sum(map(missed, cells))
    return (
        f"[{paper}]({page})",
        str(len(results)),
        *counts(cells),
        f"[{missing}]({page}#cells-that-miss)" if missing else "0",
        took(sum(stored.cpu_s for _, stored in results)),
    )


def _cells(results: Results) -> list[Cell]:
    return [cell for _, stored in results for cell in stored.evidence.cells]
