"""The launcher's side of a cluster that a user started: prepare its machines before each start, clean them after it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.infra import SupervisedProcess, make_private, start_supervised
from agent_layer.settings import Settings
from trainer_adapter.cluster.nodes.needs import ClusterNeeds, plan_needs
from trainer_adapter.config import ClusterConfig, TrainConfig

_LOOK_SECONDS = 0.25
_CLEAN_SECONDS = 120.0
"""Longest wait for machines to end what is left: the next start ends it, too."""


class PrepareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher asks for."""

    address: str
    needs: ClusterNeeds
    model: str
    """Directory of the first weights."""
    wait_seconds: float
    connect_seconds: float


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is."""

    is_done: bool = False
    faults: list[str] = []
    """What keeps the run from starting, a sentence each."""
    is_on_cpu: bool = False
    """No machine that offers GPUs to Ray has one."""
    waits_for: str = ""
    """What it waits for; empty: nothing."""


class JoinedCluster:
    """A Ray cluster that runs before and after the run.

    Args:
        address: of its head, as Ray takes it.
        config: of the run.
        settings: of the run.
        directory: of the run, which all machines see.
        say: gets a sentence whenever there is something to wait for.
    """

    def __init__(
        self, address: str, config: TrainConfig, settings: Settings, directory: Path, say: Callable[[str], None]
    ) -> None:
        self.address = address
        self._directory, self._say = directory, say
        self._log = settings.dir.absolute() / "logs" / "ray-machines.log"
        self._request = PrepareRequest(
            address=address,
            needs=plan_needs(config),
            model=str(config.model.absolute()),
            wait_seconds=(config.cluster or ClusterConfig()).wait_seconds,
            connect_seconds=settings.connect_seconds,
        )

    def prepare(self, stop: Callable[[], bool]) -> Preparation | None:
        """End what an earlier start left on any machine, wait for those that the run needs, and check each.

        Args:
            stop: whether to give up.

        Returns: None: it was stopped.

        Raises:
            BadInputError: the cluster cannot run it; the message has a line for each fault.
            UnreachableError: the program that looks ended without an answer.
        """
        answer_path(self._directory).unlink(missing_ok=True)
        process, message, found = self._run("prepare"), "", Preparation()
        try:
            while process.is_running:
                if stop():
                    return None
                found = self._read() or found
                if found.waits_for not in ("", message):
                    message = found.waits_for
                    self._say(message)
                time.sleep(_LOOK_SECONDS)
        finally:
            process.stop()
        found = self._read() or found
        if not found.is_done:
            raise UnreachableError(
                f"ray at {self.address}: expected an answer about its machines, found none; see {process.log}, which"
                f" ends: {process.log_tail}"
            )
        if found.faults:
            raise BadInputError("\n".join(found.faults))
        return found

    def clean(self) -> None:
        """End what a start left on any machine, unless the cluster does not answer."""
        process, deadline = self._run("clean"), time.monotonic() + _CLEAN_SECONDS
        while process.is_running and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        process.stop()

    def _run(self, verb: str) -> SupervisedProcess:
        make_private(self._directory)
        _request_path(self._directory).write_bytes(msgspec.json.encode(self._request))
        command = [sys.executable, "-m", "trainer_adapter.cluster.nodes.program", verb, str(self._directory)]
        return start_supervised(command, {"RAY_USAGE_STATS_ENABLED": "0"}, self._log)

    def _read(self) -> Preparation | None:
        try:
            return msgspec.json.decode(answer_path(self._directory).read_bytes(), type=Preparation)
        except FileNotFoundError:
            return None


def read_request(directory: Path) -> PrepareRequest:
    """Return what the launcher asks for."""
    return msgspec.json.decode(_request_path(directory).read_bytes(), type=PrepareRequest)


def answer_path(directory: Path) -> Path:
    """Return the file of the answer."""
    return directory / "machines-found.json"


def _request_path(directory: Path) -> Path:
    return directory / "machines.json"
