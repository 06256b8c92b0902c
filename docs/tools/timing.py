"""The picture at the top of README.md: one round of the tutorial under each protocol, by party.

    python -m docs.tools.timing     writes docs/images/timing_light.svg and timing_dark.svg

It is the figure `timing` of `simfl report --figures`, narrower, so that its words can be read on a phone.
"""

import re
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import simfl
from docs.tools import ROOT
from simfl.reports.chart import PHASE_COLOUR
from simfl.reports.figures.catalogue import KINDS
from simfl.reports.figures.style import INK, pale, style
from simfl.reports.figures.timing import timing
from simfl.reports.folder import open_folder

IMAGES = ROOT / "docs" / "images"
SCENARIO = ROOT / "scenarios" / "tutorial.yaml"

WIDTH = 4.7  # inches
LEGEND_COLUMNS = 4
# The background, the text and the lines of a dark page.
DARK, LIGHT_INK, DARK_GRID = "#0d1117", "#e6edf3", "#3d444d"


def figure(folder: Path) -> Figure:
    """Run the tutorial's scenario in shadow into `folder`, and draw it."""
    simfl.run(SCENARIO, {"payload": "shadow"}, out=folder)
    (drawn,) = timing(open_folder(folder))
    with style():
        (legend,) = drawn.legends
        handles = [handle for handle in legend.legend_handles if handle is not None]
        labels = [text.get_text() for text in legend.get_texts()]
        legend.remove()
        drawn.legend(handles, labels, loc="outside lower center", ncols=LEGEND_COLUMNS)
        drawn.set_size_inches(WIDTH, drawn.get_figheight() + 0.1)
    return drawn


def svg(drawn: Figure) -> str:
    """Return the figure as SVG, without a background."""
    with style():
        out = BytesIO()
        drawn.savefig(out, format="svg", metadata=KINDS["svg"], transparent=True)
    return re.sub(r" +$", "", out.getvalue().decode(), flags=re.M)


def darkened(text: str) -> str:
    """Return the SVG for a dark page: light ink, dim lines, and pale colours mixed with the background."""

    def dim(colour: str) -> str:
        pairs = zip(to_rgb(colour), to_rgb(DARK), strict=True)
        red, green, blue = (0.4 * value + 0.6 * dark for value, dark in pairs)
        return to_hex((red, green, blue))

    colours = {INK: LIGHT_INK, "#000000": LIGHT_INK, "#cccccc": DARK_GRID}
    colours |= {to_hex(pale(colour)): dim(colour) for colour in PHASE_COLOUR.values()}
    colours |= {"#555555": "#b0b0b0", to_hex(pale("#555555")): dim("#b0b0b0")}
    text = re.sub("#[0-9a-f]{6}", lambda match: colours.get(match[0], match[0]), text)
    return text.replace("<text ", f'<text fill="{LIGHT_INK}" ')


def pictures() -> dict[str, str]:
    """Return the text of each file by its name."""
    with TemporaryDirectory() as folder:
        light = svg(figure(Path(folder) / "run"))
    return {"timing_light.svg": light, "timing_dark.svg": darkened(light)}


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
