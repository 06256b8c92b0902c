"""TensorBoard: a curve for each value and protocol; step is the round, wall time the virtual time."""

from pathlib import Path
from typing import Any

from simfl.connect.trackers import values
from simfl.errors import need
from simfl.runs.results.round_summary import RoundSummary
from simfl.runs.results.summary import Summary
from simfl.scenario.schema import Scenario


class TensorBoard:
    """Writes event files to `folder/PROTOCOL`; show them with `tensorboard --logdir FOLDER`.

    >>> import tempfile
    >>> from simfl import run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     over = {"rounds": 2, "payload": "shadow"}
    ...     result = run("scenarios/tutorial.yaml", over, callbacks=[TensorBoard(folder)])
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['fedavg', 'lightsecagg', 'secagg']
    """

    def __init__(self, folder: str | Path) -> None:
        need("TensorBoard", "tensorboard.summary.writer.event_file_writer", "tensorboard")
        self.folder = Path(folder)
        self._writers: dict[str, Any] = {}

    def on_start(self, scenario: Scenario) -> None:
        """Do nothing: a writer is made with a protocol's first round."""

    def on_round(self, protocol: str, row: RoundSummary) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary as Written
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if protocol not in self._writers:
            self._writers[protocol] = EventFileWriter(str(self.folder / protocol))
        scalars = [Written.Value(tag=key, simple_value=value) for key, value in values(row).items()]
        # Virtual seconds instead of wall time, so that TensorBoard's axis "relative" is virtual time.
        event = Event(wall_time=row.end_s, step=row.index, summary=Written(value=scalars))
        self._writers[protocol].add_event(event)

    def on_end(self, summary: Summary) -> None:
        for writer in self._writers.values():
            writer.close()
