"""One trace out of the rows of many."""

from simfl.live.merge import merged
from simfl.trace import rows
from simfl.trace.rows import SERVER


def step(party: int, call: str, cause: int, start: int, end: int, previous: int = -1) -> rows.Step:
    segments = (("upload", end - start),)
    return rows.Step(0, party, "protocol", call, "", "", cause, previous, start, start, end, segments)


def sent(sender: int, to: int, cause: int, at: int, arrived: int | None) -> rows.Sent:
    return rows.Sent(0, sender, to, "upload", "upload", "", 8, 8, cause, at, arrived)


BEGIN = rows.Begin(0, 0, (0, 1))


def test_causes_are_found_among_the_rows_of_others() -> None:
    server = [
        BEGIN,
        step(SERVER, "start", 0, 0, 2),
        sent(1, SERVER, 1, 12, 15),
        step(SERVER, "receive", 2, 15, 16),
    ]
    user = [sent(SERVER, 1, 1, 2, 5), step(1, "receive", 0, 5, 12)]
    trace = merged({SERVER: server, 1: user}, [])
    assert [(type(row).__name__, getattr(row, "cause", None)) for row in trace] == [
        ("Begin", None), ("Step", 0), ("Sent", 1), ("Step", 2), ("Sent", 3), ("Step", 4),
    ]  # fmt: skip


def test_an_aborted_message_is_caused_by_its_sender() -> None:
    user = [step(1, "submit", -1, 0, 3), sent(1, SERVER, 0, 3, None)]
    assert merged({SERVER: [BEGIN], 1: user}, [])[2] == sent(1, SERVER, 1, 3, None)


def test_the_loss_of_a_dead_user_is_added_and_is_the_cause() -> None:
    server = [BEGIN, step(SERVER, "gone", -3, 20, 21)]
    _, lost, gone = merged({SERVER: server}, [(0, 1, "", "training", 10)])
    assert lost == rows.Lost(0, 1, "", "training", "its connection broke", -1, 10)
    assert isinstance(gone, rows.Step)
    assert gone.cause == 1


def test_a_loss_that_the_user_noted_is_not_added() -> None:
    own = rows.Lost(0, 1, "", "upload", "amid sending upload", -1, 9)
    trace = merged(
        {SERVER: [BEGIN, step(SERVER, "gone", -3, 20, 21)], 1: [own]}, [(0, 1, "", "training", 10)]
    )
    assert trace[:2] == [BEGIN, own]
    assert len(trace) == 3


def test_a_cause_that_is_later_is_not_believed() -> None:
    server = [BEGIN, sent(1, SERVER, 5, 1, 2), step(SERVER, "receive", 1, 2, 3)]
    assert merged({SERVER: server, 1: [step(1, "train", 9, 10, 11)]}, [])[1] == sent(1, SERVER, -1, 1, 2)


def test_a_users_times_never_go_back() -> None:
    user = [step(1, "receive", -1, 5, 9), sent(1, SERVER, 0, 2, None)]
    trace = merged({SERVER: [BEGIN, step(SERVER, "start", 0, 0, 7)], 1: user}, [])
    assert [type(row).__name__ for row in trace] == ["Begin", "Step", "Step", "Sent"]


def test_a_clock_that_was_behind_is_set() -> None:
    server = [BEGIN, step(SERVER, "start", 0, 0, 2), sent(1, SERVER, 1, 9, 12)]
    user = [sent(SERVER, 1, 1, 2, 4), step(1, "receive", 0, 4, 9)]
    trace = merged({SERVER: server, 1: user}, [], {1: 2})
    assert trace[2:] == [sent(SERVER, 1, 1, 2, 6), step(1, "receive", 2, 6, 11), sent(1, SERVER, 3, 11, 12)]
    early = merged({SERVER: server, 1: user}, [], {1: -3})
    assert early[2] == sent(SERVER, 1, 1, 2, 3), "a message arrives after it was sent"


def test_comings_and_goings_are_those_that_the_user_noted() -> None:
    """The server's rows stand where a user has none, as it died; else what they caused is the user's."""
    server = [BEGIN, rows.Presence(1, False, 7), rows.Presence(1, True, 9), step(SERVER, "back", 2, 9, 10)]
    user: list[rows.Row] = [rows.Presence(1, False, 5), rows.Presence(1, True, 8)]
    trace = merged({SERVER: server, 1: user}, [])
    assert trace[:3] == [BEGIN, *user]
    assert [getattr(row, "cause", None) for row in trace[3:]] == [2]
    assert merged({SERVER: server}, [])[1:3] == server[1:3]
