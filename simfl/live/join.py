"""Users of a live run across machines: they join a server, and leave when the run is over or it is gone.

The scenario may come from the server. It is read as data then: `scenario.remote` refuses each block that
would open or execute anything of this machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from simfl.errors import BadInput, RunFailed
from simfl.learning.trainer import one_thread
from simfl.live.connection import Sockets
from simfl.live.hello import Admission, Welcome
from simfl.live.live_protocol import LiveProtocol, prepared
from simfl.live.observer import Observer
from simfl.live.processes import GONE, cores, exit_codes, forked
from simfl.live.real_time import run
from simfl.live.serve import OWN, digest
from simfl.live.tls import Address
from simfl.runs.folder.identity import code_version
from simfl.scenario.remote import load_remote
from simfl.scenario.schema import Scenario

FROM_SERVER = "the server's scenario"


def received(text: str) -> Scenario:
    """Return the scenario that a server sent; BadInput if it would open or execute anything here."""
    return load_remote(text, FROM_SERVER, OWN)


def looked(address: Address, admission: Admission, user: int, wait_s: float) -> Welcome:
    """Ask a server what is played; BadInput with its reason if it turns the user away."""

    async def look() -> Welcome:
        observer = await Observer.connect(address, admission, user, wait_s)
        observer.close()
        return observer.welcome

    return run(look())


def join(
    address: Address,
    admission: Admission,
    users: Sequence[int],
    scenario: Scenario | None = None,
    processes: int | None = None,
    wait_s: float = 60.0,
    tell: Callable[[str], None] = lambda name: None,
) -> None:
    """Be some users of a live run, in each of its protocols.

    Args:
        address: the server's.
        admission: their tokens, and the server's pinned fingerprint.
        users: their numbers.
        scenario: with `OWN`; the server's unless given.
        processes: among which the users are dealt; one for each core unless given.
        wait_s: so long a server may take to appear.
        tell: called before each protocol.

    Raises:
        BadInput: the server turns a user away, or is another one.
        RunFailed: the server is gone before the run was over.
    """
    admission = replace(admission, code=code_version(), own_entropy=True)
    admission = replace(admission, scenario="" if scenario is None else digest(scenario))
    welcome = looked(address, admission, users[0], wait_s)
    study = prepared(scenario or received(welcome.scenario))
    admission = replace(admission, scenario=digest(study.scenario))
    if not all(user < study.scenario.population.users for user in users):
        raise BadInput(f"user {max(users)}: the run has users 0 to {study.scenario.population.users - 1}")
    processes = min(processes or cores(), len(users))
    parts = [users[k::processes] for k in range(processes)]
    with one_thread(study.by_torch):
        for name in welcome.protocols.split(","):
            if name not in study.scenario.protocols:
                raise BadInput(f"the server plays {name!r:.80}, which the scenario does not have")
            tell(name)
            sockets = Sockets(has_links=welcome.links == "user")
            protocol = LiveProtocol(study, name, sockets, replace(admission, protocol=name), wait_s)
            _protocol(protocol, address, parts)


def _protocol(protocol: LiveProtocol, address: Address, parts: Sequence[Sequence[int]]) -> None:
    """Be the users in one protocol, each part of them in a process of its own."""
    protocol.warm()
    with forked(lambda users: protocol.be_users(users, address), parts) as pids:
        codes = exit_codes(pids)
    if codes == {GONE}:
        raise RunFailed("the server is gone")
    if codes != {0}:
        raise RunFailed("not all users stayed until the end")
