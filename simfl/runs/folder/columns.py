"""The columns of a run's tables with their meanings, units in brackets; docs/outputs.md is made from them."""

_ENTRY = {
    "protocol": "An entry of the scenario's `protocols`.",
    "round": "The round, or the aggregation of an asynchronous run, from 0.",
}

BREAKDOWN = {
    **_ENTRY,
    "measure": "`span` or `critical`: a phase's span, or a part of the round's critical path.",
    "phase": "`offline`, `training`, `upload` or `recovery`.",
    "party": "Of the critical path: a user, or `server`.",
    "kind": "Of the critical path: `compute`, `network` or `wait`.",
    "seconds": "[s] Of virtual time.",
}

PARTICIPATION = {**_ENTRY, "user": "A user whose update is in the aggregate; a row for each."}

ENERGY = {
    **_ENTRY,
    "party": "A user, or `server`.",
    "phase": "`offline`, `training`, `upload` or `recovery`.",
    "source": "`cpu`, or of the radio `up`, `down`, `active`, `tail`, `idle`.",
    "joules": "[J] Drawn.",
}

METRICS = {**_ENTRY, "time_s": "The end of the round, from the start of the run."}

MEASURED = ("accuracy", "loss", "aggregate_exact", "wrapped", "clipped")
"""Keys of a round's summary that `metrics.jsonl` has as well."""

UPDATES = {
    "users": "Users of the scenario.",
    "rounds": "[t] The recorded rounds.",
    "means": "[t, d] Their aggregates, divided by the weights.",
    "which": "[n] Of each update, the index of its round in `rounds`.",
    "members": "[n] Its user.",
    "weights": "[n] Its weight in the aggregate.",
    "updates": "[n, d] The update itself.",
}
"""The arrays of `updates-NAME.npz`, shapes in brackets."""
