"""Processes of servers on any machine of the cluster: which have ended, and how to end them.

Those of this machine are looked at here, others by an actor on theirs. A machine has died when Ray says so: one that is
only slow to answer has not.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple, cast

import ray
from ray.actor import ActorProxy
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer_adapter.cluster.nodes.machine import KnownProcess, Machine

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportFunctionMemberAccess=false
# Ray carries few types; its handles have the methods of their class.

_ANSWER_SECONDS = 5.0
_KILL_SECONDS = 30.0


class ServerProcesses(NamedTuple):
    """Processes of a server, or of other parts of a run on one machine, and where they are."""

    node_id: str
    address: str
    processes: list[KnownProcess]


class ServerEnd(NamedTuple):
    """Why a server does not answer any more."""

    why: str
    is_machine: bool = False
    """Its machine is gone, and no other server can start there."""


def start_machine(node_id: str) -> ActorProxy[Machine]:
    """Start the actor of a machine; it reserves nothing."""
    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(Machine).options(num_cpus=0, scheduling_strategy=place).remote()


def alive_nodes() -> dict[str, str]:
    """Return the address of each machine that Ray knows to be alive, by the id that Ray gave it."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def find_own_process(name: str) -> ServerProcesses:
    """Return this process, under a name, and where it is."""
    node_id, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
    return ServerProcesses(node_id, address, [KnownProcess.of(os.getpid(), name)])


def join_by_machine(parts: Iterable[ServerProcesses]) -> list[ServerProcesses]:
    """Return one for each machine, with all processes there."""
    found: dict[str, ServerProcesses] = {}
    for part in parts:
        before = found.get(part.node_id)
        processes = [*(before.processes if before else []), *part.processes]
        found[part.node_id] = part._replace(processes=processes)
    return list(found.values())


def explain_end(server: ServerProcesses) -> ServerEnd | None:
    """Return what of a server has ended; None: all runs, or it is not known yet."""
    is_here = _is_here(server)
    if is_here:
        ended = Machine().find_ended(server.processes)
    else:
        try:
            call = _find_machine(server.node_id).find_ended.remote(server.processes)
            ended = cast("list[KnownProcess]", ray.get(call, timeout=_ANSWER_SECONDS))
        except (GetTimeoutError, RayActorError, ActorUnschedulableError) as error:
            if not isinstance(error, GetTimeoutError | ActorUnavailableError):
                _MACHINES.pop(server.node_id, None)
            is_alive = server.node_id in alive_nodes()  # an actor that waits for a dead machine is only late
            return None if is_alive else ServerEnd(f"machine {server.address} has ended", is_machine=True)
    if not ended:
        return None
    names = ", ".join(f"{one.name} (process {one.pid})" for one in ended)
    return ServerEnd(f"{names} has ended{'' if is_here else f' on machine {server.address}'}")


def kill_server(server: ServerProcesses) -> None:
    """Kill the processes of a server, on its machine.

    Raises: ray.exceptions.RayError: the machine does not answer.
    """
    if _is_here(server):
        Machine().kill(server.processes)
    else:
        ray.get(_find_machine(server.node_id).kill.remote(server.processes), timeout=_KILL_SECONDS)


def _is_here(server: ServerProcesses) -> bool:
    return server.node_id == ray.get_runtime_context().get_node_id()


_MACHINES: dict[str, ActorProxy[Machine]] = {}
"""Machines by the id that Ray gave them; in veRL's trainer only."""


def _find_machine(node_id: str) -> ActorProxy[Machine]:
    if node_id not in _MACHINES:
        _MACHINES[node_id] = start_machine(node_id)
    return _MACHINES[node_id]
