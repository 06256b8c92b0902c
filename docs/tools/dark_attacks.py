"""The figures of docs/attacks.md for a dark page: without their white ground, and with light ink.

    python -m docs.tools.dark_attacks     writes docs/attacks_*_dark.svg beside the light ones

The site's style sheet turns other figures round. In these the images that were found must stay as they are.
"""

from pathlib import Path

from docs.tools import ROOT
from docs.tools.timing import LIGHT_INK
from simfl.reports.figures.style import INK

FIGURES = [ROOT / "docs" / f"attacks_{kind}.svg" for kind in ("inversion", "model_inversion")]
GROUND = '<rect width="100%" height="100%" fill="white"/>\n'


def dark_path(figure: Path) -> Path:
    """Return the path of the figure for a dark page."""
    return figure.with_stem(f"{figure.stem}_dark")


def darkened(svg: str) -> str:
    """Return the SVG without its ground, and with light ink."""
    assert GROUND in svg
    return svg.replace(GROUND, "").replace(INK, LIGHT_INK)


if __name__ == "__main__":
    for path in FIGURES:
        dark_path(path).write_text(darkened(path.read_text(encoding="utf-8")), encoding="utf-8")
