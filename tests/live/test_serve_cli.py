"""`simfl serve`, `join` and `ping`: usage, files, and two machines played by two namespaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simfl.live import tls
from simfl.live.ping import LinkMeasurement
from simfl.runs.folder.unfinished import recover
from simfl.runs.results.summary import read
from tests.live.test_cli import called
from tests.live.test_run_live import SMALL

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"protocols": ["fedavg", "secagg"]}))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "SCENARIO", "--listen", "0.0.0.0:7000", "--tokens", "x"), "beyond the loopback"),
        (("serve", "SCENARIO", "--listen", "myhost:7000", "--tokens", "x"), "beyond the loopback"),
        (("serve", "SCENARIO", "--listen", "7000", "--tokens", "x"), "must be HOST:PORT"),
        (("serve", "SCENARIO"), "--make-cert DIR writes one"),
        (("serve", "SCENARIO", "--tokens", "x", "--cert", "x"), "must be given together"),
        (("serve", "SCENARIO", "--tokens", "x", "--resume"), "needs the folder"),
        (("serve", "SCENARIO", "--tokens", "/none"), "cannot be read"),
        (("join", "simfl://192.0.2.1:7000", "--user", "1", "--token-file", "x"), "beyond the loopback"),
        (("join", "http://127.0.0.1:7000", "--user", "1", "--token-file", "x"), "must be HOST:PORT"),
        (("join", "simfl://127.0.0.1:9", "--users", "1-", "--token-file", "x"), "must be numbers"),
        (("join", "simfl://127.0.0.1:9", "--user", "1", "--token-file", "/none"), "cannot be read"),
        (("ping", "simfl://192.0.2.1:7000", "--token-file", "x"), "beyond the loopback"),
        (("ping", "simfl://127.0.0.1:9"), "--token-file"),
    ],
)
def test_bad_usage_is_one_message(
    arguments: tuple[str, ...], said: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*(scenario if part == "SCENARIO" else part for part in arguments)) == 2
    assert said in " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().err).split())


def test_secret_files_are_readable_by_their_owner_alone(tmp_path: Path, scenario: str) -> None:
    made = tls.make(tmp_path / "keys", 3)
    assert [oct(path.stat().st_mode & 0o777) for path in (made.key, made.tokens)] == ["0o600", "0o600"]
    tokens = tls.tokens(made.tokens, range(3))
    assert len(set(tokens.values())) == 3
    assert all(len(token) == 64 for token in tokens.values())
    assert tls.fingerprint_of(made.certificate) == made.pin == tls.pin(made.pin.upper())
    assert called("serve", scenario, "--make-cert", str(tmp_path / "keys")) == 2, "nothing is overwritten"
    other = tls.make(tmp_path / "other", 3)
    with pytest.raises(tls.BadInput, match="no certificate with its key"):
        tls.server_context(made.certificate, other.key)


@pytest.mark.parametrize(
    "text", ["0 short", "x " + "a" * 64, "0 " + "a" * 64 + "\n0 " + "b" * 64, "1 " + "a" * 64, "\udcff"]
)
def test_bad_tokens_are_one_message(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(text, errors="surrogateescape")
    with pytest.raises(tls.BadInput, match="tokens"):
        tls.tokens(tmp_path / "tokens", [0])


@pytest.mark.ci
def test_a_ping_of_the_loopback_is_a_network(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("ping", scenario) == 0
    network = yaml.safe_load(capsys.readouterr().out)["network"]
    assert 0 <= network["overhead_s"] < 0.1
    assert 0 <= network["users"]["latency_s"] < 0.1
    assert network["users"]["uplink_mbps"] > 1
    assert network["users"]["downlink_mbps"] > 1


def started(*command: str, **how: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **how)


def simfl(*arguments: str) -> tuple[str, ...]:
    return sys.executable, "-m", "simfl", *arguments


@pytest.fixture
def two_machines() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The beginnings of commands on a server and on another machine, which a veth connects."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    one, two = (f"simfl-{side}-{os.getpid()}" for side in "sj")

    def ip(*arguments: str) -> None:
        subprocess.run(("ip", *arguments), check=True, capture_output=True)

    try:
        try:
            ip("netns", "add", one)
            ip("netns", "add", two)
            ip("link", "add", "veth0", "netns", one, "type", "veth", "peer", "name", "veth0", "netns", two)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no namespaces here: {error.stderr!r}")
        for name, address in ((one, "10.77.0.1/24"), (two, "10.77.0.2/24")):
            ip("-n", name, "addr", "add", address, "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")
        yield ("ip", "netns", "exec", one), ("ip", "netns", "exec", two)
    finally:
        for name in (one, two):
            subprocess.run(("ip", "netns", "del", name), check=False, capture_output=True)


@pytest.mark.slow
def test_two_machines_as_the_docs_say(
    two_machines: tuple[tuple[str, ...], tuple[str, ...]], scenario: str, tmp_path: Path
) -> None:
    """Interrupted after the first protocol, and resumed; the users leave, and join again."""
    server, machine = two_machines
    made = tls.make(tmp_path / "keys", 4)
    url, out = "10.77.0.1:7000", tmp_path / "real"
    files = "--cert", str(made.certificate), "--key", str(made.key), "--tokens", str(made.tokens)
    serves = simfl("serve", scenario, "--listen", url, *files, "--out", str(out), "--wait", "60")
    joins = simfl("join", f"simfl://{url}", "--token-file", str(made.tokens), "--pin", made.pin, "--user")
    serving = started(*server, *serves)
    joining = started(*machine, *joins, "0-3", "--processes", "1")
    saved, ends = out / "unfinished" / "rounds.sqlite", time.monotonic() + 60
    while not (saved.exists() and b'"done":true' in saved.read_bytes()) and time.monotonic() < ends:
        time.sleep(0.01)
    time.sleep(0.1)  # the journal of SQLite may still be there
    serving.send_signal(signal.SIGKILL)
    serving.communicate(timeout=30)
    told, _ = joining.communicate(timeout=60)
    assert "simfl: the server has ended" in told or "no connection (Connection refused)" in told, told
    assert joining.returncode == 1
    recover(out)
    assert list(read(out / "summary.json").protocols) == ["fedavg"]
    serving = started(*server, *serves, "--resume")
    joining = started(*machine, *joins, "0-1", scenario)
    others = started(*machine, *joins, "2-3", "--processes", "1")
    for process in (joining, others):
        told, _ = process.communicate(timeout=60)
        assert (process.returncode, told.splitlines()) == (0, ["Joins secagg", "The run is over"]), told
    told, _ = serving.communicate(timeout=30)
    assert serving.returncode == 0, told
    assert "secagg: 1 aggregate not checked: users do not send how they rounded" in told
    summary = read(out / "summary.json")
    assert [len(summary.protocols[name].completed) for name in ("fedavg", "secagg")] == [1, 1]
    assert not summary.interrupted


def test_small_and_large_figures_of_a_link_are_numbers() -> None:
    block = LinkMeasurement(0.00008, 0.0, 12345.6, 0.25, 0.06, (0.31, 0.05)).block()
    users = {"uplink_mbps": 12345.6, "downlink_mbps": 0.25, "latency_s": 0, "queue_s": 0.25}
    assert yaml.safe_load(block) == {"network": {"users": users, "overhead_s": 0.00008}}
