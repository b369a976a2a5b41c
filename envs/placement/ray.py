"""Workers on a Ray cluster: one actor for each, which runs the worker as a child process.

Ray only finds a machine and reports its loss; leases, results and drains take their usual ways. Settings and their
secrets go to the actor in a call: Ray's dashboard and state commands show an actor's constructor arguments and runtime
environment, but not the arguments of calls. Processes of Ray's user can read them, and so can the network unless Ray
uses TLS.
"""

import logging
import math
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.settings import Settings
from envs.placement.local import WorkerProcess
from envs.placement.worker_handle import WorkerSpec

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Much of ray carries no types.


_OBJECT_STORE_BYTES = 100 << 20
"""Size for a Ray started here; only worker specs and exit statuses pass through it."""
_MAX_CHARACTERS = 300
_LOST = -9
"""Exit status of a worker whose actor or machine is gone."""

StartOnRay: TypeAlias = Callable[[WorkerSpec], Awaitable["RayWorker"]]


class RayResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Resources that Ray reserves for each worker; names as in Ray's own actor options."""

    num_cpus: float = 1
    num_gpus: float = 0
    memory: int | None = None
    """Bytes."""
    resources: dict[str, float] = {}
    label_selector: dict[str, str] = {}


class _Reference(Protocol):
    """A result of a call to an actor, which may be awaited."""

    def __await__(self) -> Generator[object, None, object]: ...


class _Method(Protocol):
    """A method of an actor."""

    def remote(self, *arguments: object) -> _Reference: ...


class _Actor(Protocol):
    """Remote methods of a ``WorkerActor``."""

    start: _Method
    call: _Method


class WorkerActor:
    """Ray actor that runs one worker as a child process; the worker ends with the actor."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None

    async def start(self, spec: WorkerSpec) -> None:
        """Start the worker."""
        self._worker = await WorkerProcess.start(spec)

    async def call(self, method: str) -> object:
        """Call a method of the worker by its name."""
        return await getattr(self._worker, method)()


class RayWorker:
    """A worker on Ray; see WorkerHandle."""

    def __init__(self, spec: WorkerSpec, resources: RayResources) -> None:
        fields: dict[str, object] = msgspec.structs.asdict(resources)
        options = {name: value for name, value in fields.items() if value not in (None, {})}
        actor = ray.remote(WorkerActor).options(max_restarts=0, **options).remote()
        self._actor = cast("ActorHandle[WorkerActor]", actor)
        self._remote = cast("_Actor", actor)
        self._has_started = False
        self._starting = self._remote.start.remote(spec)
        self.name = repr(actor)

    async def wait_ready(self) -> None:
        """See WorkerHandle; also waits while Ray has no room for it."""
        await self._starting
        await self._call("wait_ready")

    async def drain(self) -> None:
        """See WorkerHandle."""
        if not self._has_started:  # it may wait for room, and would not answer
            await self.kill()
            return
        with suppress(RayError):
            await self._call("drain")

    async def kill(self) -> None:
        """See WorkerHandle; the worker ends with the actor."""
        ray.kill(self._actor)

    async def wait_exit(self) -> int:
        """See WorkerHandle."""
        try:
            await self._starting
            self._has_started = True
            return cast("int", await self._call("wait_exit"))
        except RayError:
            return _LOST
        finally:
            ray.kill(self._actor)

    async def _call(self, method: str) -> object:
        return await self._remote.call.remote(method)


@contextmanager
def connected_ray(settings: Settings, resources: str, num_workers: int) -> Generator[StartOnRay]:
    """Connect to the cluster of the settings, or start Ray on this machine, until the end of the block.

    Raises:
        BadInputError: Ray has no such resources.
        UnreachableError: no Ray answers at that address.
    """
    try:
        reserved = msgspec.json.decode(resources, type=RayResources)
    except msgspec.MsgspecError as error:
        names = ", ".join(RayResources.__struct_fields__)
        raise BadInputError(
            f"--resources: {resources!r} is no JSON object with any of {names} ({error}); see 'agent-layer work -h'"
        ) from error

    async def start(spec: WorkerSpec) -> RayWorker:
        return RayWorker(spec, reserved)

    try:
        if settings.ray_address is not None:
            join_ray(settings.ray_address, settings.connect_seconds)
        else:
            ray.init(
                "local",
                num_cpus=math.ceil(reserved.num_cpus * (num_workers + 1)),  # one more while a worker is replaced
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                logging_level=logging.WARNING,
            )
        yield start
    finally:
        ray.shutdown()


def join_ray(address: str, connect_seconds: float) -> None:
    """Connect this process to a Ray cluster that runs.

    Args:
        address: "auto", or HOST:PORT.
        connect_seconds: longest wait for its port.

    Raises: UnreachableError: no Ray of this version answers there.
    """
    try:
        # fail early: Ray itself tries for two minutes, and then ends the process
        named = urlsplit(address if "//" in address else f"//{address}")
        if named.hostname and named.port:
            socket.create_connection((named.hostname, named.port), connect_seconds).close()
        ray.init(address, logging_level=logging.WARNING)
    except (OSError, RuntimeError) as error:
        text = " ".join(str(error).split())[:_MAX_CHARACTERS]
        raise UnreachableError(
            f"ray at {address}: no cluster answers ({text}); start one, or unset RAY_ADDRESS. One that asks for a token"
            " needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here, too"
        ) from error
