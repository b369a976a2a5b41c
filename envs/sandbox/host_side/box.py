"""Boxes with a server inside: the worker's side of every kind that reaches its boxes over a socket.

Output travels through pipes that the worker made, so a command can neither pretend to have written more or less than it
did, nor make the worker wait: the worker stops reading at the limit, and kills.
"""

import asyncio
import errno
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Literal, Protocol, TypeAlias

import msgspec

from agent_layer.errors import BoxExhaustedError, SandboxError
from agent_layer.schema.sandbox import (
    EXEC_SECONDS,
    MAX_FILE,
    MAX_OUTPUT,
    EndOfBox,
    Entry,
    ExecResult,
    Process,
    Sandbox,
    SandboxSpec,
    Snapshot,
)
from envs.sandbox.host_side.cgroups import Cgroup, CgroupUsage
from envs.sandbox.host_side.connection import BoxConnection, BoxReply
from envs.sandbox.host_side.ending import BoxWatch, judge_end
from envs.sandbox.host_side.live import MAX_CPU_SECONDS, LiveProcess, ProcessEnds
from envs.sandbox.host_side.outcome import Outcome, make_result
from envs.sandbox.host_side.pipes import InputFeeder, OutputCollector

_KILL_SECONDS = 5.0
"""Seconds for the server to report the end of a child that it was asked to kill; then the box is lost."""
_MAX_JOBS = 32
"""Jobs of one box at the same time; further ones wait."""
_FILE_SECONDS = 30.0
_ALIVE_SECONDS = 1.0
_MAX_LIST_LENGTH = 16 << 20
_Row: TypeAlias = tuple[str, Literal["file", "directory", "link", "other"], int, int]
"""Name, type, size and mode of a directory's entry."""


class BoxHandle(Protocol):
    """What a kind knows of the processes and files of a box."""

    async def end(self) -> None:
        """Kill every process of the box, and remove everything else."""
        ...

    @property
    def cgroup(self) -> Cgroup | None:
        """What limits the box, and counts what it uses; None: nothing does, or this machine does not show it."""
        ...


class ServedSandbox:
    """A box whose server answers over a socket. Contract: ``Sandbox``."""

    def __init__(
        self, box_id: str, kind: str, spec: SandboxSpec, *, owner: str, connection: BoxConnection, life: BoxHandle
    ) -> None:
        self.id = box_id
        self.kind = kind
        self.spec = spec
        self.owner = owner
        self._connection = connection
        self._life = life
        limits = spec.resources
        self._watch = BoxWatch(
            box=box_id, before=self._usage(), memory_mb=limits.memory_mb, max_processes=limits.processes
        )
        connection.on_lost = lambda: self._note_end("gone")
        self.ended: EndOfBox | None = None
        """Why it ended before it was closed; None: it has not."""
        self._jobs = asyncio.Semaphore(_MAX_JOBS)
        self._ending: asyncio.Task[None] | None = None
        self.start_sibling: Callable[[SandboxSpec, str], Awaitable[Sandbox]] | None = None
        """Makes another box, for ``fork``."""
        self.on_end: Callable[[], None] = lambda: None
        """Called once, when nothing of the box is left."""

    async def exec(  # the protocol's own signature
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = EXEC_SECONDS,
        max_output: int = MAX_OUTPUT,
    ) -> ExecResult:
        """Run a command to its end."""
        if not 0 < seconds <= MAX_CPU_SECONDS:
            raise ValueError(f"sandbox: expected seconds above 0 and at most a week, found {seconds}")
        cpu_seconds = math.ceil(seconds)
        command = _command(argv, cwd, env, cpu_seconds)
        with self._running_command() as before:
            outcome = await self._run(command, stdin, seconds, max_output)
        return self._make_result(outcome, cpu_seconds, before, self._watch.latest)

    @asynccontextmanager
    async def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pty: bool = False,
        is_service: bool = False,  # noqa: ARG002  # for a supervisor, which measures time
    ) -> AsyncGenerator[Process]:
        """Start a command with live stdio."""
        command = {**_command(argv, cwd, env, MAX_CPU_SECONDS), "pty": pty}
        with self._running_command() as before:

            def judge(outcome: Outcome) -> ExecResult:
                return self._make_result(outcome, MAX_CPU_SECONDS, before, self._usage())

            ends = ProcessEnds(judge, self._kill)
            process = await LiveProcess.start(self._connection, command, ends, pty=pty)
            try:
                yield process
            finally:
                await process.kill()
                process.close()

    async def read(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """Return the content of a regular file."""
        return await self._touch({"job": "read", "path": path, "max_bytes": max_bytes}, max_output=max_bytes + 1)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Create or replace a file."""
        await self._touch({"job": "write", "path": path, "mode": mode}, data)

    async def list(self, path: str = ".") -> Sequence[Entry]:
        """Return what a directory contains."""
        found = await self._touch({"job": "list", "path": path}, max_output=_MAX_LIST_LENGTH)
        try:
            rows = msgspec.json.decode(found, type=list[_Row])
        except msgspec.DecodeError as error:  # commands of the box can write into its pipes
            raise OSError(errno.EIO, os.strerror(errno.EIO), path) from error
        return tuple(Entry(name=name, type=kind, size_bytes=size, mode=mode) for name, kind, size, mode in rows)

    async def snapshot(self, paths: Sequence[str] = (".",)) -> Snapshot:
        """Return files below the work directory."""
        limit = 2 * (self.spec.resources.disk_mb << 20) + _MAX_LIST_LENGTH
        return Snapshot(archive=await self._touch({"job": "pack", "paths": list(paths)}, max_output=limit))

    async def restore(self, snapshot: Snapshot) -> None:
        """Add the files of a snapshot to the work directory."""
        await self._touch({"job": "unpack"}, snapshot.archive)

    async def fork(self) -> Sandbox:
        """Return another box with the same work directory."""
        if self.start_sibling is None:
            raise SandboxError(f"sandbox {self.id}: the box is closed; fork it before")
        snapshot = await self.snapshot()
        other = await self.start_sibling(self.spec, self.owner)
        try:
            await other.restore(snapshot)
        except BaseException:
            await other.close()
            raise
        return other

    async def is_alive(self) -> bool:
        """Whether the server answers within a second."""
        with suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(_ALIVE_SECONDS):
                return (await asyncio.shield(self._connection.ask("pong", {"ping": True}))).pong
        return False

    async def close(self) -> None:
        """End the box."""
        if self._ending is None:
            self.start_sibling = None
            self._connection.close()
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._life.end()
        self.on_end()

    async def _touch(self, job: Mapping[str, object], stdin: bytes = b"", max_output: int = 1 << 16) -> bytes:
        """Run a job on files and return its output. Raises: OSError: as the box met it. SandboxError: no answer."""
        outcome = await self._run({**job, "cpu_seconds": int(_FILE_SECONDS)}, stdin, _FILE_SECONDS, max_output)
        if outcome.cut == "output_limit":
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), job.get("path"))
        is_hindered = outcome.reply is not None and (outcome.reply.error is not None or outcome.cut == "timeout")
        if (is_hindered and self._watch.num_running) or (self.ended is not None and self.ended.cause == "policy"):
            why = f"sandbox {self.id}: its commands leave no room for others" if self.ended is None else self.ended.why
            raise BoxExhaustedError(errno.ENOMEM, why)
        if outcome.reply is None or outcome.cut or outcome.reply.error is not None:
            raise SandboxError(f"sandbox {self.id}: {job['job']} got no answer; the box is gone or full, take another")
        if outcome.reply.status:
            try:
                reported = msgspec.json.decode(outcome.stderr, type=dict[str, int])["errno"]
            except (msgspec.DecodeError, KeyError):  # for example its death
                reported = errno.EIO
            number = reported if reported in errno.errorcode else errno.EIO
            raise OSError(number, os.strerror(number), job.get("path"))
        return outcome.stdout

    async def _run(self, job: Mapping[str, object], stdin: bytes, seconds: float, max_output: int) -> Outcome:
        async with self._jobs:
            return await self._run_now(job, stdin, seconds, max_output)

    async def _run_now(self, job: Mapping[str, object], stdin: bytes, seconds: float, max_output: int) -> Outcome:
        began, cut = time.monotonic(), None
        with ExitStack() as ends:
            collector = OutputCollector(max_output)
            ends.callback(collector.close)
            feeder = InputFeeder(stdin)
            ends.callback(feeder.close)
            try:
                number, reply = self._connection.request(job, [feeder.reader, *collector.writers])
            finally:
                collector.close_writers()
                feeder.close_reader()
            try:
                await asyncio.wait({reply, collector.overflow}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not reply.done():
                    cut = "output_limit" if collector.overflow.done() else "timeout"
                    await self._kill(number, reply)
            except asyncio.CancelledError:
                await self._kill(number, reply)  # when the cancellation is over, so is the command
                raise
            collector.drain()
            cut = cut or ("output_limit" if collector.overflow.done() else None)
            return Outcome(
                reply=None if reply.exception() else reply.result(),
                cut=cut,
                stdout=bytes(collector.outputs[0]),
                stderr=bytes(collector.outputs[1]),
                seconds=time.monotonic() - began,
            )

    async def _kill(self, number: int, reply: asyncio.Future[BoxReply]) -> None:
        """Have a child killed; a server that cannot is ended with its box."""
        at_kill = self._usage()
        self._connection.send({"kill": number})
        await asyncio.wait({reply}, timeout=_KILL_SECONDS)
        if not reply.done():
            self._note_end("stuck", at_kill)
            await self.close()

    @contextmanager
    def _running_command(self) -> Generator[CgroupUsage]:
        """Context manager for a command of the box's user; yields what the box had used when it began."""
        watch, cgroup = self._watch, self._life.cgroup
        if cgroup is not None and not watch.num_running:
            cgroup.forget_peak()
        before = self._usage()
        if not watch.num_running:
            watch.before = before
        watch.num_running += 1
        try:
            yield before
        finally:
            watch.num_running -= 1
            watch.latest = self._usage()
            if not watch.num_running:
                watch.before = watch.latest

    def _usage(self) -> CgroupUsage:
        return CgroupUsage() if self._life.cgroup is None else self._life.cgroup.usage()

    def _make_result(self, outcome: Outcome, cpu_seconds: int, before: CgroupUsage, after: CgroupUsage) -> ExecResult:
        memory_mb = self.spec.resources.memory_mb
        return make_result(outcome, cpu_seconds, memory_mb, before, after, ended=self.ended)

    def _note_end(self, how: Literal["gone", "stuck"], at_kill: CgroupUsage | None = None) -> None:
        if self.ended is None and self._ending is None:
            cpu_limit = _KILL_SECONDS * min(self.spec.resources.cpus, os.cpu_count() or 1)
            self.ended = judge_end(
                self._watch, self._usage(), how, at_kill=at_kill or CgroupUsage(), cpu_limit=cpu_limit
            )


def _command(
    argv: Sequence[str], cwd: str | None, env: Mapping[str, str] | None, cpu_seconds: int
) -> dict[str, object]:
    """Return the request of a command. Raises: ValueError: it names no program."""
    if not argv or isinstance(argv, str):
        raise ValueError(f"sandbox: expected a command as a list of program and arguments, found {argv!r}")
    return {"job": "exec", "argv": list(argv), "cwd": cwd or ".", "env": dict(env or {}), "cpu_seconds": cpu_seconds}
