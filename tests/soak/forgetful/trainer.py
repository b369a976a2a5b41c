"""The line's trainer: ``trainer.py DIRECTORY RUN``; settings from the environment.

It keeps some groups submitted, takes them as they close, records what each step learns from, and keeps a ledger of its
own, as a checkpoint would. It notes in ``DIRECTORY/journal`` what it submitted, received and suffered. After
``DIRECTORY/stop`` is there it submits no more, and ends once it has all of its groups. As ``trainer_adapter.loop.feed``
does, it submits and acknowledges the groups of a step in one call each, and submits open groups again where the server
changed. One that starts again goes on from its ledger.
"""

import base64
import json
import os
import sys
import time
from pathlib import Path

from redis.exceptions import RedisError

from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.errors import AgentLayerError
from agent_layer.schema.codec import encode
from agent_layer.schema.task import Task
from agent_layer.schema.training import TrainedBatch
from agent_layer.store import GroupDelivery, Store, open_store
from trainer_adapter.data import read_group, record_batch, select_batch

_NUM_OPEN, _GROUP_SIZE, _GROUPS_PER_STEP = 8, 4, 2
_QUIET_SECONDS = 0.5
_REST_SECONDS = 0.3


class Trainer:
    """One run's trainer; every step of its loop may fail, and is done again."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory, self._run = directory, run
        self._journal = os.open(directory / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._ledger = os.open(directory / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._open: dict[str, Task] = {}
        self._trained: set[str] = set()
        self._pending: dict[str, GroupDelivery] = {}
        self._prepared: tuple[TrainedBatch, list[str]] | None = None
        """Stored, and not in the ledger yet."""
        self._num_submitted, self._step = 0, 0
        self._resume()
        self._server_change: bytes | None = None
        self._dispatcher: Dispatcher | None = None
        self._store: Store | None = None

    def _resume(self) -> None:
        for line in map(json.loads, (self._directory / "ledger").read_bytes().splitlines()):
            self._step = line["step"]
            self._trained.update(line["groups"])
        notes = map(json.loads, (self._directory / "journal").read_bytes().splitlines())
        for group_id in (note["subject"] for note in notes if note["what"] == "submitted"):
            number = int(group_id.partition(".")[0].removeprefix("t"))
            self._num_submitted = max(self._num_submitted, number + 1)
            if group_id not in self._trained:
                self._open[group_id] = self._make_task(number)

    def _make_task(self, number: int) -> Task:
        return Task(id=f"t{number}", run=self._run, group_size=_GROUP_SIZE, scorer="agent", input="x")

    def note(self, what: str, subject: str, detail: object = None) -> None:
        line = {"at": time.monotonic(), "what": what, "subject": subject, "detail": detail}
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def work(self) -> None:
        """Train until there is nothing left to receive after the stop."""
        while self._open or not self._is_stopped():
            try:
                self._turn()
            except (RedisError, AgentLayerError, OSError) as error:
                self.note("trouble", type(error).__name__, str(error)[:300])
                time.sleep(_REST_SECONDS)

    def _is_stopped(self) -> bool:
        return (self._directory / "stop").exists()

    def _turn(self) -> None:
        if self._dispatcher is None or self._store is None:
            self._dispatcher, self._store = connect(), open_store()
        self._submit(self._dispatcher)
        for delivery in self._store.follow("trainer", self._run, wait_seconds=_QUIET_SECONDS, max_unacked=None):
            self._receive(delivery)
            if len(self._pending) >= _GROUPS_PER_STEP:
                break
        if len(self._pending) >= _GROUPS_PER_STEP or (self._pending and self._is_stopped()):
            self._train(self._store)

    def _submit(self, dispatcher: Dispatcher) -> None:
        if (change := dispatcher.find_server_change()) not in (None, self._server_change):
            known = {group.group_id for group in dispatcher.groups(list(self._open))}
            forgotten = [group_id for group_id in self._open if group_id not in known]
            self.note("submitted again", str(len(forgotten)), forgotten)
            dispatcher.submit(list(self._open.values()))
            self._server_change = change
        num_wanted = 0 if self._is_stopped() else max(0, _NUM_OPEN - len(self._open))
        tasks = [self._make_task(self._num_submitted + number) for number in range(num_wanted)]
        for group_id, task in zip(dispatcher.submit(tasks) if tasks else (), tasks, strict=True):
            self._open[group_id] = task
            self._num_submitted += 1
            self.note("submitted", group_id)

    def _receive(self, delivery: GroupDelivery) -> None:
        group_id, members = delivery.group.group_id, [one.trajectory_id for one in delivery.trajectories]
        self.note("received", group_id, [members, delivery.group.trajectory_ids, delivery.group.num_usable])
        if group_id in self._trained or group_id not in self._open:
            delivery.ack()
        else:
            self._pending[group_id] = delivery

    def _train(self, store: Store) -> None:
        if self._prepared is None:
            samples = [read_group(one, 0, 1).samples for one in self._pending.values()]
            record = record_batch(select_batch(samples, keep_equal=False), self._run, self._step + 1, 0)
            store.append(record)
            self._prepared = record, list(self._pending)
        record, group_ids = self._prepared
        line = {"step": self._step + 1, "groups": group_ids, "record": base64.b64encode(encode(record)).decode()}
        os.write(self._ledger, json.dumps(line).encode() + b"\n")
        os.fsync(self._ledger)
        self._prepared = None
        self._step += 1
        self._trained.update(group_ids)  # in the checkpoint from now on, acknowledged or not
        for group_id in group_ids:
            self._open.pop(group_id, None)
            del self._pending[group_id]
        self.note("trained", str(self._step), group_ids)
        store.acknowledge("trainer", self._run, group_ids)


if __name__ == "__main__":
    Trainer(Path(sys.argv[1]), sys.argv[2]).work()
