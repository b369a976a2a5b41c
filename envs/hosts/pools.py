"""Where requests find their process: one that all share, or a fresh one per attempt."""

import asyncio
import os
import socket
from collections import deque
from itertools import count

import msgspec

from envs.channel import connect
from envs.hosts.host_client import FROM_HOST, Host
from envs.hosts.host_process import HostProcess, Launcher, describe_exit
from envs.hosts.protocol import MAX_PACKET_LENGTH, Died, Fork, Kill, Ready

_END_SECONDS = 5.0
"""Seconds for an unused process to end by itself."""


class SharedHost:
    """One process for all requests, restarted when it has died.

    Args:
        name: its name in errors.
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

    async def acquire_host(self) -> Host:
        """Return the process; start it if it does not run.

        Raises: BadInputError: it cannot be started.
        """
        async with self._starting:
            if self._host is None or self._host.is_dead:
                await self._start()
            assert self._host is not None
            return self._host

    async def prepare(self) -> Ready:
        """Start the process, and return what it loaded; raises as ``acquire_host`` does."""
        await self.acquire_host()
        return self._ready

    async def release_host(self, host: Host) -> None:
        """Do nothing: other requests still use the process."""

    async def close(self) -> None:
        """End the process."""
        if self._watching is not None and self._host is not None and self._spawned is not None:
            self._host.close()
            await self._spawned.end_within(_END_SECONDS)
            await self._watching

    async def _start(self) -> None:
        if self._watching is not None:
            await self._watching
        spawned, self._ready = await self._launcher.launch()
        host = Host(self._name, spawned.kill)
        host.attach(await connect(spawned.end, FROM_HOST, host.on_message))
        self._host, self._spawned = host, spawned
        self._watching = asyncio.create_task(self._watch(host, spawned))

    async def _watch(self, host: Host, spawned: HostProcess) -> None:
        exit_code = await spawned.wait()
        spawned.kill()
        self._launcher.record_death()
        host.mark_dead_when_closed(describe_exit(exit_code))


class ForkServerClient:
    """The worker's connection to a fork server."""

    def __init__(self, name: str, spawned: HostProcess) -> None:
        self._name = name
        self.spawned = spawned
        self.is_dead = False
        self._hosts: dict[str, tuple[Host, asyncio.Future[None]]] = {}
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        """Packets that have not been sent, each with the socket to pass along."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(spawned.end, self._on_readable)

    async def fork(self, token: str) -> Host:
        """Return a freshly forked process."""
        ours, theirs = socket.socketpair()
        host = Host(self._name, lambda: self.kill(token))
        self._hosts[token] = host, self._loop.create_future()
        self._send(Fork(token=token), theirs)
        host.attach(await connect(ours, FROM_HOST, host.on_message))
        return host

    def kill(self, token: str) -> None:
        """Kill a process and its descendants."""
        self._send(Kill(token=token))

    def close(self) -> None:
        """Close the connection: nothing more is forked, and the server ends."""
        if not self.is_dead:
            self.spawned.end.shutdown(socket.SHUT_WR)

    async def wait_gone(self, host: Host) -> None:
        """Wait until a process and its descendants have ended."""
        for other, gone in list(self._hosts.values()):
            if other is host:
                await gone

    def mark_dead(self, how: str) -> None:
        """Mark the fork server dead, and so every process that it forked."""
        self.is_dead = True
        self._loop.remove_reader(self.spawned.end)
        self._drop_unsent()
        self.spawned.end.close()
        for token in list(self._hosts):
            self._on_exit(token, how)

    def _send(self, request: Fork | Kill, end: socket.socket | None = None) -> None:
        """Send a packet in order; a busy fork server accepts some hundred, and the others later."""
        self._unsent.append((msgspec.msgpack.encode(request), end))
        if len(self._unsent) == 1 and not self.is_dead:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            packet, end = self._unsent[0]
            try:
                socket.send_fds(self.spawned.end, [packet], [end.fileno()] if end is not None else [])
            except BlockingIOError:
                self._loop.add_writer(self.spawned.end, self._flush)
                return
            except OSError:  # the watcher of the fork server handles it
                break
            self._unsent.popleft()
            if end is not None:
                end.close()
        self._drop_unsent()

    def _drop_unsent(self) -> None:
        self._loop.remove_writer(self.spawned.end)
        for _, end in self._unsent:
            if end is not None:
                end.close()
        self._unsent.clear()

    def _on_readable(self) -> None:
        try:
            packet = self.spawned.end.recv(MAX_PACKET_LENGTH)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:  # the watcher of the fork server handles it
            self._loop.remove_reader(self.spawned.end)
            return
        died = msgspec.msgpack.decode(packet, type=Died)
        self._on_exit(died.token, died.error or describe_exit(os.waitstatus_to_exitcode(died.status)))

    def _on_exit(self, token: str, how: str) -> None:
        if (found := self._hosts.pop(token, None)) is None:
            return
        host, gone = found
        host.mark_dead_when_closed(how)
        if not gone.done():
            gone.set_result(None)


class ForkedHosts:
    """One fresh process per attempt, forked by a warm fork server.

    Args:
        name: what runs there, for errors.
        launcher: starts the fork server.
    """

    def __init__(self, name: str, launcher: Launcher) -> None:
        self._name = name
        self._launcher = launcher
        self._fork_server: ForkServerClient | None = None
        self._watching: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._tokens = count()
        self._ready = Ready()

    async def acquire_host(self) -> Host:
        """Return a fresh process.

        Raises: BadInputError: the fork server cannot be started.
        """
        return await (await self._ensure_fork_server()).fork(str(next(self._tokens)))

    async def prepare(self) -> Ready:
        """Start the fork server, and return what it loaded; raises as ``acquire_host`` does."""
        await self._ensure_fork_server()
        return self._ready

    async def release_host(self, host: Host) -> None:
        """Kill a process, and wait until it and its descendants have ended."""
        host.close()
        host.kill()
        if self._fork_server is not None:
            await self._fork_server.wait_gone(host)

    async def close(self) -> None:
        """End the fork server and every process that it forked."""
        if self._fork_server is not None and self._watching is not None:
            self._fork_server.close()
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

    async def _watch(self, fork_server: ForkServerClient) -> None:
        exit_code = await fork_server.spawned.wait()
        fork_server.spawned.kill()
        self._launcher.record_death()
        fork_server.mark_dead(f"its fork server died: {describe_exit(exit_code)}")
