"""What kinds share whose boxes a warm zygote forks."""

import asyncio
import socket
from abc import abstractmethod
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import ClassVar, Final, TypeAlias

from agent_layer.errors import SandboxError
from agent_layer.schema import new_id
from agent_layer.schema.sandbox import HOST_IMAGE, Sandbox, SandboxSpec, check_spec
from envs.sandbox.host_side.connection import BoxConnection, check_ready
from envs.sandbox.host_side.kind import ServedKind
from envs.sandbox.host_side.rules import box_rules, check_mounts, writable_mb
from envs.sandbox.host_side.zygote import (
    NUM_USERS,
    START_SECONDS,
    ForkedBoxHandle,
    Zygote,
    ZygoteLostError,
    advise,
    start_zygote,
)

_MAX_SLOTS: Final = NUM_USERS // 2 - 1
_MAX_LOST: Final = 2
"""Starts that may fail with a killed zygote: the box that it was making, and the next, which finds it gone."""
_MAX_ZYGOTES: Final = 4
"""Zygotes that stay without a box, one for each image."""
_Root: TypeAlias = tuple[str, tuple[str, ...]]
"""Image and mounts."""


class ZygoteKind(ServedKind):
    """Base of kinds that have a zygote for each image. Contract: ``SandboxKind``."""

    first_user: ClassVar[int]
    """First of the users that its boxes have when the worker is root."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = asyncio.Lock()
        self._zygotes: dict[_Root, Zygote] = {}
        """By what boxes see, used longest ago first."""
        self._slots = count(1)

    def describe(self) -> str:
        """Return what boxes use on this machine."""
        return next(iter(self._zygotes.values())).describe() if self._zygotes else ""

    @abstractmethod
    def check(self, spec: SandboxSpec) -> None:
        """Raise an error when this kind cannot make a box of this spec."""

    @abstractmethod
    def complete_config(self, config: dict[str, object]) -> None:
        """Add to what the zygote gets to know of a box; ``users`` at least."""

    def next_slot(self) -> int:
        """Return a number that no other open box has."""
        return 1 + next(self._slots) % _MAX_SLOTS

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""
        check_spec(spec)
        check_mounts(spec)
        self.check(spec)
        for _ in range(_MAX_LOST):
            with suppress(ZygoteLostError):
                return await self._start(await self._running_zygote(spec), spec, owner)
        return await self._start(await self._running_zygote(spec), spec, owner)

    async def _start(self, zygote: Zygote, spec: SandboxSpec, owner: str) -> Sandbox:
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self._make_box(zygote, spec, owner)
        except OSError as error:  # a time-out too
            raise SandboxError(f"sandbox: no box could be made, {error or 'it takes too long'}; try again") from error

    async def _make_box(self, zygote: Zygote, spec: SandboxSpec, owner: str) -> Sandbox:
        box_id = new_id()
        async with AsyncExitStack() as undo:
            cgroup = zygote.add_cgroup(box_id, spec)
            if cgroup is not None:
                undo.callback(cgroup.remove)
            ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs:
                config = {
                    **box_rules(spec, has_cgroup=cgroup is not None),
                    "disk_mb": writable_mb(spec.resources),
                    "files": spec.resources.files,
                    "mounts": spec.mounts,
                }
                self.complete_config(config)
                pid, pidfd = await zygote.spawn(config, theirs)
            life = ForkedBoxHandle(pidfd, cgroup)
            undo.push_async_callback(life.end)
            connection = BoxConnection(ours)
            undo.callback(connection.close)
            try:
                if cgroup is not None:
                    cgroup.add_process(pid)
                reply = await connection.ask("ready", {"go": True})
            except (SandboxError, ProcessLookupError, FileNotFoundError) as error:  # the last: its cgroup is gone
                raise ZygoteLostError("sandbox: the box ended before it was up; try again") from error
            zygote.missing = check_ready(reply, advise=advise)
            undo.pop_all()
        return self.add_box(box_id, spec, owner=owner, connection=connection, life=life)

    async def close(self) -> None:
        """End all boxes and zygotes."""
        await super().close()
        while self._zygotes:
            await self._zygotes.popitem()[1].stop()

    async def _running_zygote(self, spec: SandboxSpec) -> Zygote:
        root = image, mounts = _find_root(spec)
        async with self._lock:
            zygote = self._zygotes.pop(root, None)
            if zygote is not None and not zygote.is_running:
                await zygote.stop()
                zygote = None
            if zygote is None:
                used = {_find_root(box.spec) for box in self.open_boxes}
                for idle in [one for one in self._zygotes if one not in used]:  # used longest ago first
                    if len(self._zygotes) >= _MAX_ZYGOTES:
                        await self._zygotes.pop(idle).stop()
                zygote = await start_zygote(self.first_user, None if image == HOST_IMAGE else image, mounts)
            self._zygotes[root] = zygote
            return zygote


def _find_root(spec: SandboxSpec) -> _Root:
    return spec.image, tuple(spec.mounts)
