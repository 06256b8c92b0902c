"""How long Python takes to move a pair of shares from a dict of dicts to another, as their number grows.

    python -m benchmarks.relaying     prints n and nanoseconds a pair

The form is that of a published server (`papers.ftsa`): what each user sent to each other user becomes what
each user receives, and the result of the last time is freed in the timed part. Run it alone on a core.
"""

import time
from collections import defaultdict
from statistics import fmean

USERS = (100, 200, 300, 400, 600, 800, 1000)
TIMES = 5
"""Repetitions, as often as the published benchmark repeats them."""


class Sealed:
    """An encrypted pair of shares: 61 bytes, a tag and a nonce."""

    def __init__(self) -> None:
        self.text, self.tag, self.nonce = (bytes(bytearray(size)) for size in (61, 16, 16))


def relayed(sent: dict[int, dict[int, Sealed]]) -> dict[int, dict[int, Sealed]]:
    """Return receiver -> sender -> pair, of sender -> receiver -> pair."""
    received: defaultdict[int, dict[int, Sealed]] = defaultdict(dict)
    for sender in sent:
        for receiver in sent[sender]:
            received[receiver][sender] = sent[sender][receiver]
    return received


def pair_ns(n: int) -> float:
    """Return the mean nanoseconds a pair among n users."""
    users = range(1, n + 1)
    sent = {user: {other: Sealed() for other in users if other != user} for user in users}
    taken, last = [], None
    for _ in range(TIMES):
        start = time.process_time_ns()
        last = relayed(sent)
        taken.append(time.process_time_ns() - start)
    assert last is not None
    return fmean(taken) / n / (n - 1)


if __name__ == "__main__":
    for n in USERS:
        print(f"{n:5} {pair_ns(n):6.0f} ns")
