"""Small runs with their folders: rounds that lose users, one that aborts, a buffered run, more to compare."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simfl.reports.folder import Run, open_run
from simfl.scenario.load import load
from simfl.studies.sweep import tables
from tests.engine.harness import ASYNC, SESSIONS, SIX, run, script
from tests.studies.sweep.small import study, swept

TWO = {**SIX, "protocols": ["fedavg", "secagg"], "payload": "shadow"}


def opened(folder: Path) -> Run:
    """What `simfl report` reads."""
    path = folder / "resolved.yaml"
    return open_run(folder, load(path), path.read_text(encoding="utf-8"))


def renamed(some: Run, entry: str, name: str) -> Run:
    """A run of one entry with names that no scenario may have: what is shown is escaped all the same."""
    (old,) = some.traces
    protocols = {entry: some.scenario.protocols[old]}
    return replace(
        some,
        scenario=some.scenario.model_copy(update={"name": name, "protocols": protocols}),
        summary=some.summary.model_copy(
            update={"scenario": name, "protocols": {entry: some.summary.protocols[old]}}
        ),
        traces={entry: some.traces[old]},
        rounds={entry: some.rounds[old]},
    )


def changed(some: Run, name: str, **changes: Any) -> Run:
    """A run of one entry, with changes of its summary."""
    entry = some.summary.protocols[name].model_copy(update=changes)
    return replace(some, summary=some.summary.model_copy(update={"protocols": {name: entry}}))


@pytest.fixture(scope="session")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three rounds of six users: one lost mid-upload, one lost in training, too many lost."""
    folder = tmp_path_factory.mktemp("losing")
    lost = (0, 1, "upload", "mid_send"), (5, 1, "training", "before_send")
    many = tuple((user, 2, "shares", "before_send") for user in range(4))
    run({**SIX, "rounds": 3, "dropout": script(*lost, *many)}, out=folder)
    return opened(folder)


@pytest.fixture(scope="session")
def buffered(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Eight aggregations of users who come and go."""
    folder = tmp_path_factory.mktemp("buffered")
    run({"population.availability": SESSIONS}, ASYNC, out=folder)
    return opened(folder)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs, of which `links` and `lossy` differ from `base`; repeats; sweeps, `wide` of more points."""
    root = tmp_path_factory.mktemp("compare")
    run(TWO, out=root / "base")
    run({**TWO, "network.users.uplink_mbps": 80.0}, out=root / "links")
    lost = tuple((user, 0, "shares", "before_send") for user in range(4))
    run({**TWO, "rounds": 2, "dropout": script(*lost), "protocols": ["secagg"]}, out=root / "lossy")
    run({**TWO, "protocols": ["lightsecagg"]}, out=root / "other")
    run({"payload": "shadow"}, ASYNC, out=root / "buffered")
    for number in (1, 2):
        run({**TWO, "payload": "real", "clock": "measured"}, out=root / "repeats" / f"repeat-{number}")
    for name, rates in {"narrow": [0.0], "wide": [0.0, 0.2]}.items():
        tables.write(swept(study(root, grid={"dropout.rate": rates}), root / name))
    tables.write(swept(study(root, grid={"rounds": [2]}), root / "elsewhere"))
    return root


@pytest.fixture(scope="module")
def browser(files: dict[str, Path]) -> Iterator[Any]:
    """Headless Chromium, started when the module's pages are made: while it lives, this thread has an event
    loop, in which no run can be."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (simfl[dev])")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("there is no Chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, files: dict[str, Path]) -> Iterator[Any]:
    """Open a page; what its console said and what it asked for must be nothing in the end."""
    contexts, said, asked = [], [], []

    def opener(name: str, width: int = 1200, **more: Any) -> Any:
        more = {"reduced_motion": "reduce", **more}  # what is scrolled to is there at once
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(files[name].as_uri())
        if tab.locator("#tl").count():
            tab.wait_for_selector("#tl[data-spans]", state="attached")
        return tab

    yield opener
    for context in contexts:
        context.close()
    assert not said
    assert {url for url in asked if url != "data:,"} <= {path.as_uri() for path in files.values()}
