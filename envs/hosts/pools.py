"""This file holds the process that requests share: started when it is first needed, and again when it has died.

This file holds the processes that attempts have for themselves: forked, one for each, by a zygote that is warm.
"""

import asyncio
import os
import socket
from collections import deque
from itertools import count

import msgspec

from envs.hosts.channel import connect
from envs.hosts.host import FROM_HOST, Host
from envs.hosts.launch import HostProcess, Launcher, describe_exit
from envs.hosts.protocol import LONGEST_PACKET, Died, Fork, Kill, Ready

_END_SECONDS = 5.0
"""For a process that is not needed any more to end by itself."""


class SharedHost:
    """One process for all requests.

    Args:
        name: what runs there, for errors.
        launcher: starts it.
    """

    def __init__(self, name: str, launcher: Launcher) -> None:
        self._name = name
        self._launcher = launcher
        self._host: Host | None = None
        self._spawned: HostProcess | None = None
        self._starting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._ready = Ready()

    async def take(self) -> Host:
        """Give the process, started if need be.

        Raises: BadInputError: it cannot be.
        """
        async with self._starting:
            if self._host is None or self._host.is_dead:
                await self._start()
            assert self._host is not None
            return self._host

    async def prepare(self) -> Ready:
        """Start the process, and give what it says of what it loaded; raises as ``take`` does."""
        await self.take()
        return self._ready

    async def give_back(self, host: Host) -> None:
        """It is not needed for this request any more."""

    async def close(self) -> None:
        """End the process."""
        if self._watching is not None and self._host is not None and self._spawned is not None:
            self._host.hang_up()
            await self._spawned.end_within(_END_SECONDS)
            await self._watching

    async def _start(self) -> None:
        if self._watching is not None:
            await self._watching
        spawned, self._ready = await self._launcher.launch()
        host = Host(self._name, spawned.kill)
        host.speak(await connect(spawned.end, FROM_HOST, host.hear))
        self._host, self._spawned = host, spawned
        self._watching = asyncio.create_task(self._watch(host, spawned))

    async def _watch(self, host: Host, spawned: HostProcess) -> None:
        exit_code = await spawned.wait()
        spawned.kill()
        self._launcher.note_death()
        host.die_when_silent(describe_exit(exit_code))


"""For a zygote that is not needed any more to end by itself, with all that it forked."""


class ForkServerClient:
    """A zygote as the worker sees it."""

    def __init__(self, name: str, spawned: HostProcess) -> None:
        self._name = name
        self.spawned = spawned
        self.is_dead = False
        self._hosts: dict[str, tuple[Host, asyncio.Future[None]]] = {}
        self._unsaid: deque[tuple[bytes, socket.socket | None]] = deque()
        """Packets that have not been sent, each with the socket that comes along."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(spawned.end, self._hear)

    async def fork(self, token: str) -> Host:
        """Have a process made."""
        ours, theirs = socket.socketpair()
        host = Host(self._name, lambda: self.kill(token))
        self._hosts[token] = host, self._loop.create_future()
        self._say(Fork(token=token), theirs)
        host.speak(await connect(ours, FROM_HOST, host.hear))
        return host

    def kill(self, token: str) -> None:
        """End a process, and all that it started."""
        self._say(Kill(token=token))

    def hang_up(self) -> None:
        """Say that nothing more is to be forked."""
        if not self.is_dead:
            self.spawned.end.shutdown(socket.SHUT_WR)

    async def gone(self, host: Host) -> None:
        """Wait until nothing is left of a process."""
        for other, gone in list(self._hosts.values()):
            if other is host:
                await gone

    def die(self, how: str) -> None:
        """Take note that the zygote is dead, and so all that it forked."""
        self.is_dead = True
        self._loop.remove_reader(self.spawned.end)
        self._forget_unsaid()
        self.spawned.end.close()
        for token in list(self._hosts):
            self._bury(token, how)

    def _say(self, request: Fork | Kill, end: socket.socket | None = None) -> None:
        """Send a packet, in its turn; a zygote that is busy takes some hundred, and the others later."""
        self._unsaid.append((msgspec.msgpack.encode(request), end))
        if len(self._unsaid) == 1 and not self.is_dead:
            self._say_on()

    def _say_on(self) -> None:
        while self._unsaid:
            packet, end = self._unsaid[0]
            try:
                socket.send_fds(self.spawned.end, [packet], [end.fileno()] if end is not None else [])
            except BlockingIOError:
                self._loop.add_writer(self.spawned.end, self._say_on)
                return
            except OSError:  # whoever watches the zygote says so
                break
            self._unsaid.popleft()
            if end is not None:
                end.close()
        self._forget_unsaid()

    def _forget_unsaid(self) -> None:
        self._loop.remove_writer(self.spawned.end)
        for _, end in self._unsaid:
            if end is not None:
                end.close()
        self._unsaid.clear()

    def _hear(self) -> None:
        try:
            packet = self.spawned.end.recv(LONGEST_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:  # whoever watches the zygote says so
            self._loop.remove_reader(self.spawned.end)
            return
        died = msgspec.msgpack.decode(packet, type=Died)
        self._bury(died.token, died.error or describe_exit(os.waitstatus_to_exitcode(died.status)))

    def _bury(self, token: str, how: str) -> None:
        if (found := self._hosts.pop(token, None)) is None:
            return
        host, gone = found
        host.die_when_silent(how)
        if not gone.done():
            gone.set_result(None)


class ForkedHosts:
    """A process of its own for each attempt.

    Args:
        name: what runs there, for errors.
        launcher: starts the zygote.
    """

    def __init__(self, name: str, launcher: Launcher) -> None:
        self._name = name
        self._launcher = launcher
        self._fork_server: ForkServerClient | None = None
        self._watching: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._tokens = count()
        self._ready = Ready()

    async def take(self) -> Host:
        """Give a fresh process.

        Raises: BadInputError: the zygote cannot be started.
        """
        return await (await self._ensure_fork_server()).fork(str(next(self._tokens)))

    async def prepare(self) -> Ready:
        """Start the zygote, and give what it says of what it loaded; raises as ``take`` does."""
        await self._ensure_fork_server()
        return self._ready

    async def give_back(self, host: Host) -> None:
        """End a process, and wait until nothing is left of it."""
        host.hang_up()
        host.kill()
        if self._fork_server is not None:
            await self._fork_server.gone(host)

    async def close(self) -> None:
        """End the zygote and all that it forked."""
        if self._fork_server is not None and self._watching is not None:
            self._fork_server.hang_up()
            await self._fork_server.spawned.end_within(_END_SECONDS)
            await self._watching

    async def _ensure_fork_server(self) -> ForkServerClient:
        async with self._starting:
            if self._fork_server is None or self._fork_server.is_dead:
                await self._start()
            assert self._fork_server is not None
            return self._fork_server

    async def _start(self) -> None:
        if self._watching is not None:
            await self._watching
        spawned, self._ready = await self._launcher.launch()
        self._fork_server = ForkServerClient(self._name, spawned)
        self._watching = asyncio.create_task(self._watch(self._fork_server))

    async def _watch(self, nursery: ForkServerClient) -> None:
        exit_code = await nursery.spawned.wait()
        nursery.spawned.kill()
        self._launcher.note_death()
        nursery.die(f"its zygote died: {describe_exit(exit_code)}")
