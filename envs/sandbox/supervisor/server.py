"""The supervisor: the one process of a worker's host that makes and ends sandboxes.

The worker, over a socket that both inherited, takes boxes for attempts and decides what ends. Everybody else connects
to a socket and presents a capability. The supervisor ends, with everything it made, when the worker does; when it is
killed itself, the keepers beneath its boxes end them.
"""

import asyncio
import logging
import os
import select
import shutil
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError, SandboxError
from agent_layer.infra import raise_file_limit
from agent_layer.schema.sandbox import ISOLATIONS, EndOfBox, Sandbox, SandboxSpec
from agent_layer.state import TakenSandbox, write_taken_sandboxes
from envs.channel import MAX_MESSAGE_LENGTH, Channel, connect
from envs.sandbox.kind import SandboxKind
from envs.sandbox.pool import SandboxPool, open_pool
from envs.sandbox.registry import list_kind_names, make_kind
from envs.sandbox.supervisor.budget import ByteBudget
from envs.sandbox.supervisor.clients import Client
from envs.sandbox.supervisor.messages import (
    AllowScoring,
    Answer,
    Begin,
    BoxLost,
    Cancel,
    Collect,
    EndOwner,
    EndScoring,
    Expect,
    GetCommandTime,
    GetStats,
    GetUsage,
    ListBoxes,
    ListOffers,
    OwnerCall,
    OwnerRequest,
    OwnerToSupervisor,
    TakeBox,
    TakenBox,
    ToSupervisor,
    Welcome,
    make_failure,
)
from envs.sandbox.supervisor.owners import Capabilities, Grant, Owner, describe_box, make_agent_grant, make_loss

_FROM_OWNER: msgspec.msgpack.Decoder[OwnerToSupervisor] = msgspec.msgpack.Decoder(OwnerToSupervisor)
_MAX_REQUEST_BYTES = 2 * MAX_MESSAGE_LENGTH
"""Long requests of all clients together."""
_LIST_SECONDS = 1.0
_END_SECONDS = 1.0
"""Seconds for an orderly end after the worker is gone; then the process exits, and the keepers end the boxes."""
_log = logging.getLogger(__name__)


def serve_supervisor(control: socket.socket, path: Path) -> None:
    """Serve as a supervisor until the worker is gone.

    Args:
        control: connection to the worker.
        path: of the socket for clients, alone in a directory that only this user can enter.
    """
    raise_file_limit()
    threading.Thread(target=_exit_after, args=(os.dup(control.fileno()), path.parent), daemon=True).start()
    with suppress(asyncio.CancelledError):  # the worker was gone before it began
        asyncio.run(_serve(control, path))


async def _serve(control: socket.socket, path: Path) -> None:
    begun: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
    supervisor: Supervisor | None = None

    def on_message(message: OwnerToSupervisor) -> None:
        if isinstance(message, Begin):
            begun.set_result(message)
        elif supervisor is not None:
            supervisor.on_owner_message(message)

    channel = await connect(control, _FROM_OWNER, on_message)
    channel.closed.add_done_callback(lambda _: begun.cancel())
    begin = await begun
    kinds = [make_kind(name) for name in list_kind_names()]
    try:
        async with open_pool(begin.options, kinds=kinds) as pool:
            supervisor = Supervisor(pool, kinds, channel, path)
            server = await asyncio.get_running_loop().create_unix_server(supervisor.accept, path)
            channel.send(Welcome())
            listing = asyncio.create_task(supervisor.keep_listed())
            await channel.closed
            listing.cancel()
            server.close()
            await supervisor.close()
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


class Supervisor:
    """Makes boxes for attempts, and ends them.

    Args:
        pool: where boxes come from.
        kinds: what the pool chooses from.
        channel: to the worker.
        path: of the socket for clients.
    """

    def __init__(
        self, pool: SandboxPool, kinds: list[SandboxKind], channel: Channel[OwnerToSupervisor], path: Path
    ) -> None:
        self._pool = pool
        self._kinds = kinds
        self._channel = channel
        self._path = path
        self._owners: dict[str, Owner] = {}
        self._capabilities = Capabilities()
        self._requests = ByteBudget(_MAX_REQUEST_BYTES)
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def accept(self) -> Channel[ToSupervisor]:
        """Accept a client's connection."""
        return Client(self._capabilities.find, self._take_fresh).channel

    def on_owner_message(self, message: OwnerCall | Cancel) -> None:
        """Carry out a call of the worker."""
        match message:
            case OwnerCall(number=number):
                task = self._calls[number] = asyncio.create_task(self._answer(message))
                task.add_done_callback(lambda _: self._calls.pop(number, None))
            case Cancel(number=number):
                if (task := self._calls.get(number)) is not None:
                    task.cancel()
            case _:
                assert_never(message)

    async def keep_listed(self) -> None:
        """Keep a file beside the socket up to date with what is taken, for people, until cancelled."""
        listed: list[TakenSandbox] = []
        while True:
            await asyncio.sleep(_LIST_SECONDS)
            if (rows := self._list_boxes()) != listed:
                await asyncio.to_thread(write_taken_sandboxes, self._path.parent, rows)
                listed = rows

    async def close(self) -> None:
        """End every call; the pool ends the boxes."""
        for task in list(self._calls.values()):
            task.cancel()
        await asyncio.gather(*(self._end_owner(one) for one in list(self._owners.values())), return_exceptions=True)

    async def _answer(self, call: OwnerCall) -> None:
        try:
            value = await self._carry_out(call.request)
            self._channel.send(Answer(number=call.number, value=msgspec.Raw(msgspec.msgpack.encode(value))))
        except (AgentLayerError, OSError, ValueError) as error:
            self._channel.send(make_failure(call.number, error))
        except Exception as error:  # noqa: BLE001  # the worker waits for an answer
            _log.exception("a call of the worker failed")
            self._channel.send(make_failure(call.number, error))

    async def _carry_out(self, request: OwnerRequest) -> object:  # noqa: C901, PLR0911  # one answer for each
        match request:
            case TakeBox():
                return await self._take_box(request)
            case Collect():
                return await self._owner(request.owner).collect(request.paths, request.max_bytes)
            case AllowScoring():
                return self._allow_scoring(request)
            case EndScoring():
                return await self._owner(request.owner).close_scorers()
            case EndOwner():
                owner = self._owners.pop(request.owner, None)
                return None if owner is None else await self._end_owner(owner)
            case GetUsage():
                return self._owner(request.owner).usage()
            case GetCommandTime():
                return self._owner(request.owner).command_time()
            case Expect():
                return await self._pool.expect(request.wanted)
            case GetStats():
                return self._pool.stats()
            case ListBoxes():
                return self._list_boxes()
            case ListOffers():
                return await self._list_offers()
            case _:
                assert_never(request)

    async def _take_box(self, request: TakeBox) -> TakenBox:
        """Make the box of an attempt; the attempt may have ended meanwhile, and then so has the box."""
        owner = self._find_or_add_owner(request)
        if owner.agent is not None:
            raise BadInputError(f"sandbox: the attempt of lease {request.owner} has a box already")
        grant = owner.agent = make_agent_grant(owner)
        began = time.monotonic()
        try:
            take = self._pool.take(request.spec, owner=request.owner, seconds=request.seconds)
            box = await grant.add_box(take)
            for path, text in request.files.items():
                try:
                    await box.write(path, text.encode())
                    grant.note_file(box, path)
                except OSError as error:
                    raise BadInputError(
                        f"sandbox: the task's file {path!r} cannot be written, {error.strerror}; choose a path below"
                        " the work directory, or raise the limits of the sandbox"
                    ) from error
        except BaseException:
            owner.agent = None
            await grant.close()
            raise
        if owner.agent is not grant:
            await grant.close()
            raise SandboxError("sandbox: its attempt has ended")
        seconds = time.monotonic() - began
        owner.give_box(box, grant, seconds)
        if request.lifetime_seconds is not None:
            why = make_loss(
                box.id, f"sandbox {box.id}: it lived longer than sandbox_seconds ({request.lifetime_seconds:g})"
            )
            owner.timer = asyncio.get_running_loop().call_later(request.lifetime_seconds, self._expire, owner, why)
        address = f"{self._path}#{self._capabilities.mint(grant)}"
        return TakenBox(facts=describe_box(box), address=address, boot_seconds=seconds)

    async def _take_fresh(self, spec: SandboxSpec, owner: str, seconds: float) -> Sandbox:
        return await self._pool.take(spec, owner=owner, seconds=seconds)

    def _allow_scoring(self, request: AllowScoring) -> str:
        owner = self._find_or_add_owner(request)
        grant = Grant(owner, "scorer", request.spec, request.max_boxes)
        owner.scorers.add(grant)
        return f"{self._path}#{self._capabilities.mint(grant)}"

    def _expire(self, owner: Owner, end: EndOfBox) -> None:
        owner.lose(end)
        task = asyncio.create_task(owner.close_agent())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _report_lost(self, owner: Owner) -> None:
        if owner.lost is not None:
            self._channel.send(BoxLost(owner=owner.token, end=owner.lost))

    async def _end_owner(self, owner: Owner) -> None:
        self._capabilities.forget(owner)
        agent, owner.agent = owner.agent, None
        if owner.timer is not None:
            owner.timer.cancel()
        if agent is not None:
            await agent.close()
        await owner.close_scorers()

    def _find_or_add_owner(self, request: TakeBox | AllowScoring) -> Owner:
        new = Owner(request.owner, request.task, self._report_lost, self._requests)
        return self._owners.setdefault(request.owner, new)

    def _owner(self, token: str) -> Owner:
        if (owner := self._owners.get(token)) is None:
            raise SandboxError(f"sandbox: the attempt of lease {token} has no box any more")
        return owner

    def _list_boxes(self) -> list[TakenSandbox]:
        return [
            TakenSandbox(
                box=box.id,
                kind=box.kind,
                owner=owner.token,
                task=owner.task,
                role=grant.role,
                taken_at=owner.taken_at,
            )
            for owner in self._owners.values()
            for grant in ([owner.agent] if owner.agent else []) + list(owner.scorers)
            for box in grant.boxes.values()
        ]

    async def _list_offers(self) -> list[str]:
        """Return ``sandbox:KIND`` for kinds that work here, and ``isolation:LEVEL`` for what they give at least."""
        supports = await asyncio.gather(*(kind.probe() for kind in self._kinds))
        working = [kind for kind, support in zip(self._kinds, supports, strict=True) if support.works]
        strongest = max((ISOLATIONS.index(kind.isolation) for kind in working), default=-1)
        levels = [f"isolation:{level}" for level in ISOLATIONS[: strongest + 1]]
        return [*(f"sandbox:{kind.name}" for kind in working), *levels]


def _exit_after(control: int, directory: Path) -> None:
    """Exit some time after the worker is gone, whatever the event loop does."""
    poll = select.poll()
    poll.register(control, select.POLLHUP | select.POLLERR)
    poll.poll()
    time.sleep(_END_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)
