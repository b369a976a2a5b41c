"""Kind ``oci``: boxes that an OCI runtime makes without a daemon, over the host's programs or a root directory."""

import asyncio
import os
import shutil
import socket
import struct
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import SandboxError
from agent_layer.schema import new_id
from agent_layer.schema.sandbox import HOST_IMAGE, Isolation, Sandbox, SandboxSpec, check_spec
from agent_layer.settings import load_settings
from envs.sandbox.host_side.cgroups import Cgroup, CgroupTree, make_cgroup_tree, remove_cgroup
from envs.sandbox.host_side.connection import BoxConnection, BoxReply, check_ready
from envs.sandbox.host_side.kind import ServedKind
from envs.sandbox.host_side.launch import Program, launch_program
from envs.sandbox.host_side.rules import BOX_USER, box_rules, check_image, check_mounts, check_workdir, writable_mb
from envs.sandbox.host_side.zygote import (
    FIRST_USER,
    NUM_USERS,
    describe_limits,
    describe_means,
    find_box_python,
    has_own_users,
    list_hidden_folders,
)
from envs.sandbox.spec import PATH, ImageForm

_START_SECONDS: Final = 30.0
_FIRST_USER: Final = FIRST_USER + 3 * NUM_USERS
_RUNTIMES: Final = ("runc", "crun")
_WITH_A_KERNEL: Final = ("runsc",)
_CREDENTIALS: Final = struct.Struct("3i")
_MAX_HELLO_LENGTH: Final = 4096


class OciKind(ServedKind):
    """Makes boxes by runc or crun. Contract: ``SandboxKind``."""

    name = "oci"
    cost = 30
    images: frozenset[ImageForm] = frozenset({"host", "directory"})
    stops = (
        "Stops: what kind session stops, in a container that runc or crun makes, with its masks over /proc beside our"
        " filter of system calls. Does not stop: holes in the host's kernel, which it shares, and timing attacks on"
        " neighbours."
    )

    def __init__(self) -> None:
        super().__init__()
        self._runtime = load_settings().oci_runtime
        is_kernel = Path(self._runtime or "").name in _WITH_A_KERNEL
        self.isolation: Isolation = "kernel" if is_kernel else "namespace"
        self._tree: CgroupTree | str | None = None
        self._missing: Sequence[str] = ()

    def describe(self) -> str:
        """Return what boxes use on this machine."""
        means = describe_means(self._missing)
        return f"{find_runtime(self._runtime)[0]}, {describe_limits(self._tree or '')}, {means}"

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""
        check_spec(spec)
        check_mounts(spec)
        (check_workdir if spec.image == HOST_IMAGE else check_image)(spec)
        runtime = find_runtime(self._runtime)
        if self._tree is None:
            self._tree = make_cgroup_tree()
        box_id = new_id()
        try:
            async with asyncio.timeout(_START_SECONDS), AsyncExitStack() as undo:
                cgroup = self._tree.add_cgroup(box_id, spec.resources) if isinstance(self._tree, CgroupTree) else None
                if cgroup is not None:
                    undo.push_async_callback(remove_cgroup, cgroup)
                config = {
                    "outside_user": _FIRST_USER if has_own_users() else None,
                    "image": None if spec.image == HOST_IMAGE else spec.image,
                    "mounts": spec.mounts,
                    "hidden": list_hidden_folders(),
                    "runtime": runtime,
                    "path": PATH,
                    "name": f"agent-layer-{box_id}",
                    "workdir": spec.workdir,
                    "user": BOX_USER if has_own_users() else 0,
                    "disk_mb": writable_mb(spec.resources),
                    "files": spec.resources.files,
                    "left": [str(one) for one in cgroup.directories] if cgroup else [],
                    "inherited": [str(one.parent) for one in cgroup.directories] if cgroup else [],
                }
                program = await launch_program("oci", find_box_python(), config)
                undo.push_async_callback(program.stop)
                pid = await _receive_hello(program.end)
                if cgroup is not None:
                    cgroup.add_process(pid)
                connection = BoxConnection(program.end)
                undo.callback(connection.close)
                self._missing = check_ready(await connection.ask("ready", _rules(spec, has_cgroup=cgroup is not None)))
                undo.pop_all()
        except OSError as error:  # a time-out too
            raise SandboxError(f"sandbox: no box could be made, {error or 'it takes too long'}; try again") from error
        return self.add_box(box_id, spec, owner=owner, connection=connection, life=_BoxHandle(program, cgroup))

    async def close(self) -> None:
        """End all boxes."""
        await super().close()
        if isinstance(self._tree, CgroupTree):
            self._tree.remove()
        self._tree = None


class _BoxHandle:
    """The keeper of a container, and its cgroup. Contract: ``BoxHandle``."""

    def __init__(self, program: Program, cgroup: Cgroup | None) -> None:
        self._program = program
        self.cgroup = cgroup

    async def end(self) -> None:
        """Have the keeper kill everything."""
        await self._program.stop()
        if self.cgroup is not None:
            await remove_cgroup(self.cgroup)


def find_runtime(wanted: str | None) -> list[str]:
    """Return the command of the runtime.

    Args:
        wanted: name or path; None: the first that is installed.

    Raises: SandboxError: it is missing.
    """
    path = f"{PATH}:/usr/sbin:/sbin"
    for name in [wanted] if wanted else _RUNTIMES:
        if (found := shutil.which(name, path=path)) is not None:
            return [found, "--cgroup-manager=disabled"] if Path(found).name == "crun" else [found]
    raise SandboxError(
        f"sandbox: {wanted or 'runc'} is missing; install it: apt-get install runc, or set AGENT_LAYER_OCI_RUNTIME"
    )


def _rules(spec: SandboxSpec, *, has_cgroup: bool) -> dict[str, object]:
    has_image = spec.image != HOST_IMAGE
    return {
        **box_rules(spec, has_cgroup=has_cgroup),
        "writable": ["/"] if has_image else [spec.workdir, "/tmp", "/dev/shm"],
    }


async def _receive_hello(end: socket.socket) -> int:
    """Return the process id of the server, as the kernel reports it. Raises: SandboxError: there is none."""
    loop = asyncio.get_running_loop()
    is_readable = loop.create_future()
    loop.add_reader(end, lambda: None if is_readable.done() else is_readable.set_result(None))
    try:
        await is_readable
    finally:
        loop.remove_reader(end)
    body, more, _, _ = end.recvmsg(_MAX_HELLO_LENGTH, socket.CMSG_SPACE(_CREDENTIALS.size))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    if b'"up"' not in body:
        error = msgspec.json.decode(body, type=BoxReply).error if body else "it has ended"
        raise SandboxError(f"sandbox: the runtime made no box: {error}; see whether it runs by hand")
    pid: int = _CREDENTIALS.unpack(more[0][2])[0]
    assert pid not in (0, os.getpid())  # else this process would get the limits of the box
    return pid
