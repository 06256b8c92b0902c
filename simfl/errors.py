"""The two errors that a user can cause; any other is a bug."""


class BadInput(ValueError):
    """A scenario, profile or recording that cannot be used; its text names value, bound and place."""


class RunFailed(RuntimeError):
    """A run that cannot go on; its text says where and why."""
