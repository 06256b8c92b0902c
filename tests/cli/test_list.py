"""What `simfl list` prints, against the registries of kinds."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from docs.tools.scenario import sections
from simfl.cli.authoring import REGISTRIES, listed
from simfl.config.kinds import KindRegistry
from simfl.errors import BadInput
from simfl.scenario.load import json_schema

ROOT = Path(__file__).parents[2]
NOT_IN_SCENARIOS = {"attacks"}


@cache
def written() -> tuple[dict[str, list[str]], str]:
    """Return the reference of scenarios by class, and their JSON Schema."""
    return sections(), json.dumps(json_schema())


def test_list_has_a_line_for_every_registry() -> None:
    """All that the code defines, of which a scenario's are in the reference and in the JSON Schema, too."""
    defined = {
        f"{'.'.join(path.relative_to(ROOT / 'simfl').with_suffix('').parts)}".removesuffix(".__init__")
        + f":{name}"
        for path in (ROOT / "simfl").rglob("*.py")
        for name in re.findall(r"^([A-Z_]+) = KindRegistry\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert len(defined) == len(REGISTRIES) > 12
    assert defined == set(REGISTRIES.values())


@pytest.mark.ci(but=["staleness"])
@pytest.mark.parametrize("thing", REGISTRIES)
def test_kinds_are_in_list_reference_schema_and_hints(thing: str) -> None:
    """Every word of a registry, with the text of its class; an unknown word is answered by all of them."""
    module, _, name = REGISTRIES[thing].partition(":")
    registry: KindRegistry = getattr(import_module(f"simfl.{module}"), name)  # type: ignore[type-arg]
    lines = dict(listed(thing))
    assert list(lines) == list(registry)
    assert all(lines.values())
    with pytest.raises(BadInput, match=re.escape(", ".join(registry))):
        registry.find("absent")
    if thing not in NOT_IN_SCENARIOS:
        reference, schema = written()
        section = "\n".join(reference[registry.base.__name__])
        for word in registry:
            assert f"`{word}`" in section, word
            assert f'"const": "{word}"' in schema, word


def test_list_lines_have_sizes_and_shipped_profiles() -> None:
    assert "62 classes: 1,206,590 parameters" in dict(listed("models"))["femnist_cnn"]
    assert "reference" in dict(listed("profiles"))
