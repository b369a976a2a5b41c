"""Whether the machines of a joined cluster can run a training run, and the end of what an earlier start left there."""

import secrets
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import ray
from ray._private.state import available_resources_per_node
from ray.actor import ActorProxy
from ray.exceptions import GetTimeoutError, RayError

from agent_layer.errors import BadInputError
from trainer_adapter.cluster.nodes.machine import Machine, MachineReport
from trainer_adapter.cluster.nodes.needs import ClusterNeeds, FreeMachine, find_shortage
from trainer_adapter.cluster.nodes.watch import alive_nodes, start_machine

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportFunctionMemberAccess=false
# Ray carries few types; its handles have the methods of their class.

_START_SECONDS = 180.0
"""Seconds for the first actor on a machine, and its import of PyTorch, whose files may come over a network."""
_ANSWER_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_SHARED_SECONDS = 30.0
"""Until a file that another machine wrote is seen here; NFS may remember that there was none."""
_POLL_SECONDS = 1.0
_MAX_CHARACTERS = 300
ROWS = ("TransferQueueController", "transfer_queue")
"""Name and namespace of the actor that has the rows of veRL's run; Ray has one of this name."""


def wait_for_machines(needs: ClusterNeeds, seconds: float, say: Callable[[str], None]) -> None:
    """Wait until the cluster has what a run needs.

    Raises: BadInputError: it has not after ``seconds``.
    """
    deadline, reported = time.monotonic() + seconds, ""
    while shortage := _other_run() or find_shortage(needs, free_machines()):
        if time.monotonic() > deadline:
            raise BadInputError(f"{shortage} (waited {seconds:g} s, cluster.wait_seconds)")
        if shortage != reported:
            say(f"waiting up to {seconds:g} s: {shortage}")
            reported = shortage
        time.sleep(_POLL_SECONDS)


def free_machines() -> list[FreeMachine]:
    """Return what each machine has to give now."""
    free = available_resources_per_node()
    return [
        FreeMachine(address, float(found.get("GPU", 0)), float(found.get("CPU", 0)))
        for node_id, address in sorted(alive_nodes().items(), key=lambda node: node[1])
        if (found := free.get(node_id)) is not None
    ]


def _other_run() -> str | None:
    name, namespace = ROWS
    try:
        ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None
    return (
        "Ray cluster: expected no other run of veRL on it, because all would share one store of rows, found one; wait"
        " for its end, or start another Ray cluster"
    )


class MachineCheck:
    """Actors on this machine and all others of the cluster that can have a part of the run."""

    def __init__(self) -> None:
        self._own = ray.get_runtime_context().get_node_id()
        resources = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
        self._offering_gpus = {node_id for node_id, found in resources.items() if found.get("GPU")}
        self._addresses = {
            node_id: address
            for node_id, address in alive_nodes().items()
            if node_id in {self._own, *self._offering_gpus} or resources.get(node_id, {}).get("CPU")
        }
        self._actors: dict[str, ActorProxy[Machine]] = {one: start_machine(one) for one in self._addresses}

    def kill_marked(self, name: str, value: str) -> None:
        """Kill the processes with this variable on all machines that answer."""
        for one, call in [(one, actor.kill_marked.remote(name, value)) for one, actor in self._actors.items()]:
            self._ask(one, call, _START_SECONDS)

    def find_faults(self, directory: Path, model: Path) -> tuple[list[str], bool]:
        """Return what keeps machines from training, a sentence each, and whether none has a GPU.

        Args:
            directory: of the run, which all machines must see.
            model: directory of the first weights.
        """
        calls = {one: actor.report.remote() for one, actor in self._actors.items()}
        answers = {one: self._ask(one, call, _START_SECONDS) for one, call in calls.items()}
        faults = [answer for answer in answers.values() if isinstance(answer, str)]
        reports = {one: cast("MachineReport", answer) for one, answer in answers.items() if not isinstance(answer, str)}
        own = Machine().report()
        faults += [
            fault for one, report in reports.items() for fault in compare_reports(self._addresses[one], report, own)
        ]
        has_gpus = {one: report.num_gpus > 0 for one, report in reports.items() if one in self._offering_gpus}
        if len(set(has_gpus.values())) > 1:
            without = ", ".join(self._addresses[one] for one, found in has_gpus.items() if not found)
            faults.append(
                f"machine {without}: expected a GPU that PyTorch finds, as on the others, found none; install a driver,"
                " or start Ray there with --num-gpus=0"
            )
        for one in reports:
            faults += [*self._look_at_files(one, directory, model), *self._look_at_ports(one)]
        return faults, not any(has_gpus.values())

    def _look_at_files(self, node_id: str, directory: Path, model: Path) -> Iterator[str]:
        machine, actor = f"machine {self._addresses[node_id]}", self._actors[node_id]
        remedy = "let AGENT_LAYER_DIR be on a file system that all machines share, under the same path"
        with _token(directory) as (name, token):
            answer = f"{name}-{node_id}"
            reported = self._ask(node_id, actor.answer_token.remote(directory, name, answer))
            try:
                if reported is not None:
                    yield f"{machine}: expected to read and write {directory}, of the run, found {reported}; {remedy}"
                elif not _appears(directory / answer, token):
                    yield f"{machine}: expected its files in {directory} to be seen here, found none; {remedy}"
            finally:
                (directory / answer).unlink(missing_ok=True)
        path = (model / "config.json").absolute()
        if self._ask(node_id, actor.hash_file.remote(path)) != Machine().hash_file(path):
            yield f"{machine}: expected the model's {path} as here, found none or another; copy the model there"

    def _look_at_ports(self, node_id: str) -> Iterator[str]:
        address = self._addresses[node_id]
        port = self._ask(node_id, self._actors[node_id].listen.remote(address))
        if not isinstance(port, int):
            yield f"machine {address}: expected to listen there, found {port}; see 'ray start --node-ip-address'"
            return
        try:
            socket.create_connection((address, port), _CONNECT_SECONDS).close()
        except OSError as error:
            yield (
                f"machine {address}: expected to be reached from here at port {port}, found {error}; open ports between"
                " the machines: trainers need them, and gateways that call engines"
            )

    def _ask(self, node_id: str, call: object, seconds: float = _ANSWER_SECONDS) -> object:
        """Return what a machine answers; a sentence where it does not."""
        try:
            return ray.get(call, timeout=seconds)  # pyright: ignore[reportCallIssue, reportArgumentType]
        except GetTimeoutError:
            why = f"found no answer within {seconds:g} s; see Ray's logs there"
        except RayError as error:
            reported = " ".join(str(error).split())[-_MAX_CHARACTERS:]
            why = f"found: {reported}; install the same packages for the Python that runs Ray there"
        return f"machine {self._addresses[node_id]}: expected its part of the run to answer, {why}"


def compare_reports(address: str, found: MachineReport, own: MachineReport) -> Iterator[str]:
    """Yield what is installed on a machine otherwise than on this one, a sentence each."""
    here = "as on the machine that starts the run"
    if found.python != own.python:
        yield (
            f"machine {address}: expected Python {own.python} {here}, found {found.python}; start Ray there with the"
            " same one"
        )
    for package in sorted(own.versions.keys() | found.versions.keys()):
        mine, theirs = (versions.get(package, "none") for versions in (own.versions, found.versions))
        if mine != theirs:
            yield (
                f"machine {address}: expected {package} {mine} {here}, found {theirs}; install the same packages there"
            )


@contextmanager
def _token(directory: Path) -> Generator[tuple[str, str]]:
    """A file in a directory; yields its name and content."""
    name, token = f"token-{secrets.token_hex(4)}", secrets.token_hex(16)
    (directory / name).write_text(token)
    try:
        yield name, token
    finally:
        (directory / name).unlink(missing_ok=True)


def _appears(path: Path, content: str) -> bool:
    deadline = time.monotonic() + _SHARED_SECONDS
    while time.monotonic() < deadline:
        try:
            if path.read_text() == content:
                return True
        except OSError:
            pass  # not seen yet
        time.sleep(_POLL_SECONDS / 10)
    return False
