"""The enclave (trusted execution environment) that a protocol's server may run in: its key `tee`.

The enclave is attested before the first user is asked, which takes a time once a session. It has a bounded
memory, so a run that does not fit is refused. All work of the server takes longer in it by a factor. Trust in
the hardware is not a part of the protocol: proofs regard the server as one without an enclave.

    class MyProtocol(Protocol):
        tee: Enclave = Enclave()

        def problems(self, p):
            yield from self.tee.problems(8 * p.d, f"two vectors of d={p.d}")
"""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simfl.config.blocks import Block, Positive, SecondsOrZero

if TYPE_CHECKING:
    from simfl.protocols.protocol import Problems


class Enclave(Block):
    """The enclave of a server; without settings it costs nothing and holds everything."""

    attestation_s: SecondsOrZero = 0.0
    """Seconds of its attestation, before the server's first step."""
    memory_gb: Positive | None = None
    """Its memory [GB]; without a bound unless given."""
    slowdown: Annotated[Positive, Field(ge=1)] = 1.0
    """Times that the server's work takes longer in it."""

    def problems(self, needed_bytes: int, content: str) -> "Problems":
        """Yield the problem of a server that does not fit into it.

        Args:
            needed_bytes: Bytes that the server holds at once.
            content: A phrase that names them.
        """
        if self.memory_gb is not None and needed_bytes > self.memory_gb * 1e9:
            needed = f"the {needed_bytes / 1e9:.3g} GB of {content}"
            yield "tee", f"memory_gb={self.memory_gb:g} must be at least {needed}"
