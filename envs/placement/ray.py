"""This file holds workers on a Ray cluster: one actor for each, which keeps the worker as a process of its own.

Ray only finds a place and says when it is lost; leases, results and drains go their usual ways. Settings, with
their
secrets, go to the actor in a call: what an actor is made with and its runtime environment are shown by Ray's
dashboard
and state commands, the arguments of calls are not. They can be read by whoever may look at processes of the
user that
Ray runs as, and on the wire unless Ray is run with TLS.
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
"""Of a Ray that is started here; nothing but orders and exit statuses goes through it."""
_LOST = -9
"""Exit status of a worker whose actor or machine is gone."""

StartOnRay: TypeAlias = Callable[[WorkerSpec], Awaitable["RayWorker"]]


class RayResources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What Ray sets aside for each worker; names as in Ray's own actor options."""

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
    """A ``WorkerActor`` as others see it."""

    start: _Method
    tell: _Method


class WorkerActor:
    """The actor: it stands where Ray has put it and keeps one worker, which ends when the actor does."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None

    async def start(self, order: WorkerSpec) -> None:
        """Start the worker."""
        self._worker = await WorkerProcess.start(order)

    async def tell(self, what: str) -> object:
        """Call a method of the worker by its name."""
        return await getattr(self._worker, what)()


class RayWorker:
    """A worker on Ray; see WorkerHandle."""

    def __init__(self, order: WorkerSpec, resources: RayResources) -> None:
        asked: dict[str, object] = msgspec.structs.asdict(resources)
        options = {name: value for name, value in asked.items() if value not in (None, {})}
        actor = ray.remote(WorkerActor).options(max_restarts=0, **options).remote()
        self._actor = cast("ActorHandle[WorkerActor]", actor)
        self._post = cast("_Actor", actor)
        self._has_started = False
        self._starting = self._post.start.remote(order)
        self.name = repr(actor)

    async def seen(self) -> None:
        """See WorkerHandle; waits while Ray has no room for it, too."""
        await self._starting
        await self._tell("seen")

    async def drain(self) -> None:
        """See WorkerHandle."""
        if not self._has_started:  # it may wait for room, and would not hear
            await self.kill()
            return
        with suppress(RayError):
            await self._tell("drain")

    async def kill(self) -> None:
        """See WorkerHandle; the worker is on a leash, which ends with the actor."""
        ray.kill(self._actor)

    async def ended(self) -> int:
        """See WorkerHandle."""
        try:
            await self._starting
            self._has_started = True
            return cast("int", await self._tell("ended"))
        except RayError:
            return _LOST
        finally:
            ray.kill(self._actor)

    async def _tell(self, what: str) -> object:
        return await self._post.tell.remote(what)


@contextmanager
def connected_ray(settings: Settings, resources: str, num_workers: int) -> Generator[StartOnRay]:
    """Connect to the cluster that the settings name, or start a Ray of this machine; both end with the block.

    Raises:
        BadInputError: the resources are none that Ray has.
        UnreachableError: no Ray answers at that address.
    """
    asked = _resources_of(resources)

    async def place(order: WorkerSpec) -> RayWorker:
        return RayWorker(order, asked)

    try:
        _connect(settings, asked, num_workers)
        yield place
    finally:
        ray.shutdown()


def _connect(settings: Settings, asked: RayResources, num_workers: int) -> None:
    address = settings.ray_address
    if address is None:
        num_cpus = math.ceil(asked.num_cpus * (num_workers + 1))  # one more while a worker is replaced
        ray.init(
            "local",
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=logging.WARNING,
        )
        return
    try:
        _check_reach(address, settings.connect_seconds)
        ray.init(address, logging_level=logging.WARNING)
    except (OSError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UnreachableError(
            f"ray at {address}: expected a cluster, found none ({first}); start one, or unset RAY_ADDRESS"
        ) from error


def _check_reach(address: str, seconds: float) -> None:
    """Ray itself tries for two minutes before it ends the process."""
    named = urlsplit(address if "//" in address else f"//{address}")
    if named.hostname and named.port:
        socket.create_connection((named.hostname, named.port), seconds).close()


def _resources_of(text: str) -> RayResources:
    try:
        return msgspec.json.decode(text, type=RayResources)
    except msgspec.MsgspecError as error:
        names = ", ".join(RayResources.__struct_fields__)
        raise BadInputError(
            f"--resources: expected a JSON object with any of {names}, found {text!r} ({error})"
        ) from error
