"""Starts the programs beneath boxes: this project's own archive, in a Python, with a lifeline."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Final, Literal

from agent_layer.errors import SandboxError
from envs.sandbox.archive import pack_programs
from envs.sandbox.guest.packets import send_packet
from envs.sandbox.spec import PATH

_END_SECONDS: Final = 30.0
"""A keeper waits 5 s for its processes, and as long for each directory."""


class Program:
    """A running keeper, with the socket to what it keeps."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket) -> None:
        self.end = end
        """A SEQPACKET socket to the zygote, or to the server of one box."""
        self._process = process

    @property
    def is_running(self) -> bool:
        """Whether the keeper has not ended."""
        return self._process.returncode is None

    async def stop(self) -> None:
        """Cut the lifeline, and wait until the keeper has killed and removed everything.

        Raises: SandboxError: it does not end; it was killed.
        """
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError as error:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            raise SandboxError(
                f"sandbox: keeper {self._process.pid} had not removed its boxes within {_END_SECONDS:g} s and was"
                " killed; look for processes that hang in the kernel"
            ) from error


async def launch_program(
    role: Literal["zygote", "server", "oci", "reaper"], python: str, config: Mapping[str, object]
) -> Program:
    """Start a keeper with what it keeps.

    Args:
        role: what it keeps.
        python: an interpreter that boxes may see.
        config: as ``envs.sandbox.guest.start`` describes it.
    """
    with ExitStack() as stack:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        keep_ours = stack.enter_context(ExitStack())
        keep_ours.callback(ours.close)
        stack.callback(theirs.close)
        if role == "oci":  # before the first packet: its sender is the process to limit
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        archive = os.memfd_create("agent-layer-boxes", 0)
        stack.callback(os.close, archive)
        os.write(archive, pack_programs())
        send_packet(ours, {**config, "programs": archive} if role == "oci" else config)
        try:
            process = await asyncio.create_subprocess_exec(
                *(python, "-I", f"/proc/self/fd/{archive}", role, str(theirs.fileno())),
                env={"PATH": PATH, "LANG": "C.UTF-8"},  # whole: nothing of the worker's reaches a box
                cwd="/",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[theirs.fileno(), archive],
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"sandbox: {python} does not start, {error}; look at the machine's limits") from error
        keep_ours.pop_all()
    ours.setblocking(False)  # noqa: FBT003  # its only argument
    return Program(process, ours)
