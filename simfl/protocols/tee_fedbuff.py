"""FedBuff in an enclave: a buffer that the operator of the server cannot read (Papaya, Huba 2022).

    0. attest    The enclave starts, and is attested before the first user is asked: `tee.attestation_s`.
    1. upload    A user trains version t_i of the model, and sends its update to the enclave.
    2. (server)  When K updates wait, the enclave adds their mean, with weights s(t - t_i) by staleness, to
                 the model, as in `fedbuff`. Only sums leave it.

The enclave holds the model, K updates, their sum and their mean: `tee.memory_gb` refuses a run that needs
more. Its work is slower by `tee.slowdown`.

Left out: the channel into the enclave (a key agreement, and 16 bytes a message), and Papaya's masks, by which
the enclave handles seeds alone while updates are summed outside. The source is from memory, not checked.
"""

from typing import Literal

from simfl.dataplane.handles import F32, F64
from simfl.protocols.enclave import Enclave
from simfl.protocols.fedbuff import FedBuff
from simfl.protocols.machine import Params
from simfl.protocols.protocol import Problems


class TeeFedBuff(FedBuff):
    """Buffered asynchronous aggregation in an enclave (Papaya 2022)."""

    protocol: Literal["tee_fedbuff"] = "tee_fedbuff"  # type: ignore[assignment]
    tee: Enclave = Enclave()
    """The enclave that the server runs in."""

    def problems(self, p: Params) -> Problems:
        yield from super().problems(p)
        needed = p.d * ((1 + p.K) * F32.itemsize + 2 * F64.itemsize)
        content = f"the model of d={p.d}, K={p.K} updates, their sum and mean"
        yield from self.tee.problems(needed, f"{content}; lower buffer.K, or take a smaller model")
