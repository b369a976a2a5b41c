"""Program that joins a user's Ray cluster for the launcher: ``python -m …nodes.program prepare|clean DIRECTORY``.

A process of its own: Ray may end or block the process that cannot connect, and between its starts a run holds nothing.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import ray

from agent_layer.errors import AgentLayerError, UnreachableError
from agent_layer.infra import replace_file
from envs.placement import join_ray
from trainer_adapter.cluster.nodes.checks import MachineCheck, wait_for_machines
from trainer_adapter.cluster.nodes.joined import Preparation, PrepareRequest, answer_path, read_request
from trainer_adapter.cluster.overrides import MARK

# pyright: reportUnknownMemberType=false
# Ray carries few types.

_POLL_SECONDS = 1.0


def prepare(directory: Path) -> None:
    """End what an earlier start left, wait for machines, and check each; the answer is a file."""
    request = read_request(directory)

    def say(why: str) -> None:
        _answer(directory, Preparation(waits_for=why))

    try:
        with _joined(request, say):
            MachineCheck().kill_marked(MARK, str(directory))
            wait_for_machines(request.needs, request.wait_seconds, say)
            faults, is_on_cpu = MachineCheck().find_faults(directory, Path(request.model))
        _answer(directory, Preparation(is_done=True, faults=faults, is_on_cpu=is_on_cpu))
    except AgentLayerError as error:
        _answer(directory, Preparation(is_done=True, faults=[str(error)]))


def clean(directory: Path) -> None:
    """End what a start left; Ray itself goes on."""
    with _joined(msgspec.structs.replace(read_request(directory), wait_seconds=0.0), lambda _: None):
        MachineCheck().kill_marked(MARK, str(directory))


@contextmanager
def _joined(request: PrepareRequest, say: Callable[[str], None]) -> Generator[None]:
    """Be connected to the cluster, which may be starting.

    Raises: UnreachableError: it does not answer in time.
    """
    deadline = time.monotonic() + request.wait_seconds
    while True:
        try:
            join_ray(request.address, request.connect_seconds)
            break
        except UnreachableError as error:
            if time.monotonic() > deadline:
                raise
            say(f"waiting up to {request.wait_seconds:g} s: {error}")
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        ray.shutdown()


def _answer(directory: Path, preparation: Preparation) -> None:
    replace_file(answer_path(directory), msgspec.json.encode(preparation))


if __name__ == "__main__":
    {"prepare": prepare, "clean": clean}[sys.argv[1]](Path(sys.argv[2]))
