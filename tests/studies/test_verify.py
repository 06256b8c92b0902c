"""`simfl verify` passes ours, and finds what is planted in an outside protocol, by the check that should."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.cli import main
from simfl.crypto import mds
from simfl.protocols.registry import PROTOCOLS
from simfl.studies.verify import CHECKS, Subject, verify
from tests.engine.harness import ROOT

PADS = (ROOT / "examples" / "dealt_pads.py").read_text(encoding="utf-8")
SHORT = {name: check for name, check in CHECKS.items() if name not in ("loss_patterns", "refusals")}

FAULTS: dict[str, tuple[str, str, str]] = {
    "adds pads instead of taking them off": ("[-1] * len(got)", "[1] * len(got)", "exact_sums"),
    "counts who did not upload": ("tuple(map(Member, got))", "tuple(map(Member, self.users))", "exact_sums"),
    "understates a message": (
        "    padded: Handle\n",
        "    padded: Handle\n\n    @property\n    def size_bytes(self):\n        return 1\n",
        "sizes",
    ),
    "server takes any shape": (
        "return misshapen(message.padded, 1, self.params.d + 1, U32)", 'return ""', "refusals"
    ),
    "user takes any shape": ("if flaw := misshapen(pad.seed, 1, 32, U8):", 'if flaw := "":', "refusals"),
    "looks at content": (
        "        ops.phase(\"recovery\")\n",
        "        ops.phase(\"recovery\" if got[min(got)].padded.content is not None else \"upload\")\n",
        "equal_traces",
    ),
    "deals one pad for all rounds": ('self.entropy(f"pad {user}")', "bytes([user] * 32)", "fresh_masks"),
    "uploads in the clear": (
        "PaddedUpload(self.ops.mask(x, self.seed, [1]))", "PaddedUpload(x)", "fresh_masks"
    ),
    "goes on with one user": ("        return self.least\n", "        return 1\n", "loss_patterns"),
    "has no deadlines": (
        "class PadsServer(Server):\n", "class PadsServer(Server):\n    awaits = property()\n", "contract"
    ),
    "never gives up": (
        "    def uncover(",
        "    def expire(self, timer):\n        return []\n\n    def uncover(",
        "loss_patterns",
    ),
    "draws pads from the operating system": (
        'self.entropy(f"pad {user}")', "__import__('os').urandom(32)", "replays"
    ),
    "takes a second pad": (
        '("invited", Pad): ("keep", "ready")',
        '("invited", Pad): ("keep", "ready"), ("ready", Pad): ("keep", "ready")',
        "doubles",
    ),
}  # fmt: skip


def found(subject: Subject, *names: str) -> dict[str, list[str]]:
    """The findings of these checks."""
    chosen = {name: CHECKS[name] for name in names or CHECKS}
    return {row.name: list(row.findings) for row in verify(subject, chosen) if row.findings}


@pytest.mark.ci(only=["takes any shape"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    old, new, check = FAULTS[name]
    assert PADS.count(old) == 1
    file = tmp_path / "pads.py"
    file.write_text(PADS.replace(old, new))
    assert found(Subject(f"{file}:DealtPads", {}), check)


@pytest.mark.ci
def test_the_example_passes() -> None:
    assert not found(Subject(f"{ROOT / 'examples' / 'dealt_pads.py'}:DealtPads", {}))


@pytest.mark.ci(but=["[fedavg", "[fedbuff"])
@pytest.mark.parametrize(
    "protocol",
    [pytest.param(p, marks=pytest.mark.slow) if p in ("secagg_plus", "ccesa") else p for p in PROTOCOLS],
)
def test_ours_pass_what_is_short(protocol: str) -> None:
    assert not found(Subject(protocol, {}), *SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_ours_pass_everything(protocol: str) -> None:
    assert not found(Subject(protocol, {}))


def test_a_code_at_other_points_is_found_by_galois_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks coded and decoded at alpha + 1 for alpha: the sums stay right, and it is not the stated code."""
    residues = mds._residues
    monkeypatch.setattr(mds, "_residues", lambda points, q: residues([point + 1 for point in points], q))
    mds.matrix.cache_clear()
    try:
        findings = found(Subject("lightsecagg", {}), "exact_sums", "oracle")
    finally:
        mds.matrix.cache_clear()
    assert list(findings) == ["oracle"]
    assert "audit: coding: galois has" in findings["oracle"][0]


@pytest.mark.ci
def test_the_command_says_what_it_held_it_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pads.py"
    file.write_text(PADS.replace(*FAULTS["understates a message"][:2]))
    with pytest.raises(SystemExit) as left:
        main(["verify", f"{file}:DealtPads"])
    assert left.value.code == 1
    printed = capsys.readouterr()
    assert "FAILED     sizes: The bytes of each message" in printed.out
    assert "upload states 1 bytes" in printed.out
    assert printed.err.count(f"Runs the code of {file}") == 1


def test_a_protocol_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["verify", "secag"])
    assert left.value.code == 2
    assert "unknown protocol 'secag'" in capsys.readouterr().err
