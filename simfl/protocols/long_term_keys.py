"""The long-term signing keys of a run's users: a public-key infrastructure as it stands before a run."""

from simfl.crypto.keys import hkdf
from simfl.dataplane.handles import Handle, HandleList
from simfl.dataplane.ops import Ops
from simfl.protocols.index_views import Same, Users


class Directory:
    """Everybody knows the public keys of all; of the secret keys, a user's machine asks for its own.

    root: 32 bytes from which all secret keys are derived by name, as nobody's life is long in a simulation.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._known: dict[int, Handle] = {}
        self._last: tuple[Users, Handle] | None = None

    def secret(self, user: int) -> bytes:
        return hkdf(self._root, b"simfl long-term key %d" % user)

    def publics(self, users: Users, ops: Ops) -> Handle:
        """Return the public keys of these users, a row of each: looked up by each who asks, made once."""
        if self._last is None or self._last[0] is not users:
            with ops.uncharged():
                new = [user for user in users if user not in self._known]
                self._known |= {user: ops.signing_key(ops.secret(self.secret(user))) for user in new}
                rows = HandleList([self._known[user] for user in users])
                self._last = users, ops.gather(rows, Same(0, len(users)))
        return self._last[1]
