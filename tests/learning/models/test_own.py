"""A user's own model: what works, and one error that names the place for everything that does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from simfl.learning.models import Model, find
from simfl.learning.models.batch_norm import BatchNorm
from simfl.learning.models.dropout import Dropout
from simfl.learning.models.own import own_model

GOOD = """
from __future__ import annotations
from dataclasses import dataclass
from math import prod
from torch import nn

@dataclass
class Width:
    hidden: int = 5

def build(shape, classes):
    h = Width().hidden
    first, last = nn.Linear(prod(shape), h), nn.Linear(h, classes)
    return nn.Sequential(nn.Flatten(), first, nn.BatchNorm1d(h), nn.Dropout(0.1), last)

class Net(nn.Linear):
    def __init__(self, shape, classes):
        super().__init__(shape[0], classes)

not_callable = 3
def nothing(shape, classes): pass
def upside_down(shape, classes): return nn.Linear(shape[0], classes + 1)
def raises(shape, classes):
    return helper(classes)
def helper(classes):
    raise KeyError(classes)
def asks(shape, classes):
    raise ValueError(f"images, not {shape}")
def noisy(shape, classes): return nn.Sequential(nn.Linear(shape[0], classes), nn.AlphaDropout())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(GOOD)
    return tmp_path


def test_a_function(folder: Path) -> None:
    before = torch.get_rng_state()
    model = own_model("mine.py:build", folder)
    assert isinstance(model, Model)
    assert (model.name, model.shape, model.classes) == ("mine.py:build", None, None)
    assert model.parameters((2, 3), 4) == (6 * 5 + 5) + 10 + (5 * 4 + 4)
    assert model.macs((2, 3), 4) == 30 + 10 + 20
    assert model.dropouts((2, 3), 4) == [("3", 0.1, (5,))]
    kinds = [type(layer) for layer in model.blank((2, 3), 4).children()]
    assert kinds[2:4] == [BatchNorm, Dropout]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_subclass_of_module(folder: Path) -> None:
    assert own_model("mine.py:Net", folder).parameters((7,), 4) == 32


def test_found_by_a_name_with_a_colon(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(f"{folder}/mine.py:Net").parameters((7,), 4) == 32
    assert find("mine.py:Net", folder).summary == f"your own, {folder}/mine.py"
    monkeypatch.chdir(folder)
    assert find("mine.py:Net").parameters((7,), 4) == 32


def test_it_is_loaded_under_a_private_name(folder: Path) -> None:
    before = set(sys.modules)
    other = folder / "an:other"
    other.mkdir()
    (other / "mine.py").write_text(GOOD.replace("hidden: int = 5", "hidden: int = 6"))
    models = own_model("mine.py:build", folder), own_model("an:other/mine.py:build", folder)
    assert [m.parameters((6,), 4) for m in models] == [69, 42 + 12 + 28]
    added = set(sys.modules) - before
    assert len(added) == 2
    assert all(name.startswith("_simfl_file_") for name in added)


@pytest.mark.parametrize("spec", ["mine.py", "mine.py:", ":build", ":", ""])
def test_a_spec_without_both_parts(folder: Path, spec: str) -> None:
    with pytest.raises(
        ValueError, match=r"^model .*: .* must be path\.py:Name, build\(shape, classes\) in a"
    ):
        own_model(spec, folder)


@pytest.mark.parametrize("file", ["there.py", ".", "mine"])
def test_no_such_file(folder: Path, file: str) -> None:
    (folder / "mine").touch()
    with pytest.raises(
        ValueError, match=rf"^model {file}:build: .*: there is no Python file {folder}"
    ) as raised:
        own_model(f"{file}:build", folder)
    assert str(raised.value).endswith(str(folder / file))


@pytest.mark.parametrize("name", ["missing", "not_callable"])
def test_no_such_function(folder: Path, name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^model mine.py:{name}: .*{folder}/mine.py has no (function )?{name}$"
    ):
        own_model(f"mine.py:{name}", folder)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x = 1\n1 / 0\n", r"bad\.py:2 raised ZeroDivisionError: division by zero"),
        ("def build(:\n", r"bad\.py:1: invalid syntax"),
        ("import no_such_module_anywhere\n", r"bad\.py:1 raised ModuleNotFoundError: "),
    ],
)
def test_a_file_that_does_not_run(folder: Path, text: str, shown: str) -> None:
    (folder / "bad.py").write_text(text)
    before = set(sys.modules)
    with pytest.raises(ValueError, match=rf"^model bad.py:build: {folder}/{shown}"):
        own_model("bad.py:build", folder)
    assert not any(name.startswith("_simfl") for name in set(sys.modules) - before)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nothing", r"nothing\(\[7\], 4\) gave NoneType, not a torch.nn.Module$"),
        ("upside_down", r"for 2 samples it gives \[2, 5\], not logits \[2, 4\]$"),
        ("raises", r"raises\(\[7\], 4\): .*/mine\.py:26 raised KeyError: 4$"),
        ("asks", r"asks\(\[7\], 4\): .*/mine\.py:28 raised ValueError: images, not \(7,\)$"),
        ("noisy", r"layer '1', AlphaDropout, draws random numbers: only nn.Dropout may$"),
    ],
)
def test_what_cannot_be_built(folder: Path, name: str, shown: str) -> None:
    model = own_model(f"mine.py:{name}", folder)
    for use in (model.blank, model.macs, model.dropouts, model.parameters):
        with pytest.raises(ValueError, match=rf"^model mine.py:{name}: {shown}"):
            use((7,), 4)
