"""The worker's side of a zygote: a warm process that forks the first process of each box."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import SandboxSpec
from envs.sandbox.guest.packets import receive_packet, send_packet
from envs.sandbox.host_side.cgroups import Cgroup, CgroupTree, make_cgroup_tree, remove_cgroup
from envs.sandbox.host_side.launch import Program, launch_program

START_SECONDS: Final = 60.0
"""Longest wait for a zygote or a box: both take milliseconds, but on a crowded machine many seconds."""
FIRST_USER: Final = 0x70000000
"""First of the users that boxes have when the worker is root: beyond what machines give to people."""
NUM_USERS: Final = 65536
_PYTHONS: Final = ("/usr/local/bin/python3", "/usr/bin/python3")
"""Interpreters that boxes can see, in the order in which commands find them."""
_OWN_PACKAGES: Final = ("agent_layer", "envs", "tracer", "trainer_adapter")
_NO_PROGRAMS: Final = ("/usr/src", "/usr/home", "/usr/local/src", "/usr/local/etc")
_PROGRAMS: Final = ("/usr/bin", "/usr/lib", "/usr/share", "/usr/local/bin", "/usr/local/lib", "/usr/local/share")
_REMEDIES: Final = {  # by how the error of the system call begins
    "unshare": "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone or"
    " kernel.apparmor_restrict_unprivileged_userns), or run the container with --security-opt seccomp=unconfined",
    "mount": "run the worker where mounts are allowed: outside a container, or with"
    " --security-opt systempaths=unconfined --security-opt apparmor=unconfined",
    "map users": "keep the image on ext4, xfs, btrfs or tmpfs, on Linux 5.19 or newer, or run the worker unprivileged",
}


class ZygoteLostError(SandboxError):
    """The zygote has ended; another one can be started."""


class Zygote:
    """A running zygote: answers one request at a time."""

    def __init__(self, program: Program, tree: CgroupTree | str) -> None:
        self.missing: Sequence[str] = ()
        """What the kernel has no means for, as the newest box reports it."""
        self._program = program
        self._tree = tree
        self._lock = asyncio.Lock()
        self._is_broken = False

    @property
    def is_running(self) -> bool:
        """Whether it can make boxes."""
        return self._program.is_running and not self._is_broken

    def describe(self) -> str:
        """Return what its boxes use."""
        return f"{describe_limits(self._tree)}, {describe_means(self.missing)}"

    def add_cgroup(self, box_id: str, spec: SandboxSpec) -> Cgroup | None:
        """Create the cgroup of a box; None: this machine has no writable ones.

        Raises:
            ZygoteLostError: the keeper of a zygote that was killed has removed the tree.
            OSError: the kernel refuses it.
        """
        if not isinstance(self._tree, CgroupTree):
            return None
        try:
            return self._tree.add_cgroup(box_id, spec.resources)
        except FileNotFoundError as error:
            self._is_broken = True  # asyncio may learn of its end later
            raise ZygoteLostError("sandbox: its zygote has ended; try again") from error

    async def spawn(self, config: dict[str, object], box_end: socket.socket) -> tuple[int, int]:
        """Have the first process of a box forked; return its id and descriptor."""
        async with self._lock:
            if self._is_broken:
                raise ZygoteLostError("sandbox: its zygote has ended; try again")
            try:
                async with asyncio.timeout(START_SECONDS):
                    send_packet(self._program.end, {"spawn": config}, [box_end.fileno()])
                    fields, descriptors = await _receive(self._program.end)
            except BaseException as error:
                self._is_broken = True  # the answer of this box would be taken for that of the next
                if isinstance(error, ConnectionError):
                    raise ZygoteLostError("sandbox: its zygote has ended; try again") from error
                raise
        if not descriptors:
            raise SandboxError(advise(str(fields.get("error"))))
        return int(str(fields["pid"])), descriptors[0]

    async def stop(self) -> None:
        """End it, with all of its boxes."""
        self._program.end.close()
        try:
            await self._program.stop()
        finally:
            if isinstance(self._tree, CgroupTree):
                self._tree.remove()


class ForkedBoxHandle:
    """The processes of a box, by the descriptor of the first, and its cgroup. Contract: ``BoxHandle``."""

    def __init__(self, pidfd: int, cgroup: Cgroup | None) -> None:
        self._pidfd = pidfd
        self.cgroup = cgroup

    async def end(self) -> None:
        """Kill the first process, on which the kernel kills all others before it reports the end."""
        loop = asyncio.get_running_loop()
        has_ended = loop.create_future()
        loop.add_reader(self._pidfd, lambda: None if has_ended.done() else has_ended.set_result(None))
        try:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await has_ended
        finally:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self.cgroup is not None:
            await remove_cgroup(self.cgroup)


async def start_zygote(first_user: int, image: str | None = None, mounts: Sequence[str] = ()) -> Zygote:
    """Start a zygote.

    Args:
        first_user: of its ``NUM_USERS`` users, if the worker can give it any.
        image: root directory of its boxes; None: they have the host's programs.
        mounts: further folders of the host that they see.

    Raises: SandboxError: the machine does not allow it.
    """
    python = find_box_python()
    tree = make_cgroup_tree()
    config: dict[str, object] = {
        "outside_user": first_user if has_own_users() else None,
        "hidden": list_hidden_folders(),
        "image": image,
        "mounts": list(mounts),
        "left": [str(one) for one in tree.directories] if isinstance(tree, CgroupTree) else [],
    }
    program = await launch_program("zygote", python, config)
    zygote = Zygote(program, tree)
    try:
        async with asyncio.timeout(START_SECONDS):
            fields, _ = await _receive(program.end)
    except BaseException as error:
        await zygote.stop()
        if isinstance(error, TimeoutError):
            raise SandboxError(f"sandbox: its zygote was not up within {START_SECONDS:g} s; try again") from error
        raise
    if "error" in fields:
        await zygote.stop()
        raise SandboxError(advise(str(fields["error"])))
    return zygote


async def _receive(end: socket.socket) -> tuple[dict[str, object], list[int]]:
    """Return the next packet of the zygote. Raises: SandboxError: it has ended."""
    loop = asyncio.get_running_loop()
    is_readable = loop.create_future()
    loop.add_reader(end, lambda: None if is_readable.done() else is_readable.set_result(None))
    try:
        await is_readable
    finally:
        loop.remove_reader(end)
    try:
        packet = receive_packet(end)
    except OSError:
        packet = None
    if packet is None:
        raise ZygoteLostError("sandbox: its zygote has ended; it needs Python 3.10 or newer, and memory")
    return packet.fields, packet.descriptors


def find_box_python() -> str:
    """Return a Python that boxes with the host's programs can see.

    Raises: SandboxError: this machine has none.
    """
    python = next(filter(os.path.exists, _PYTHONS), None)
    if python is None:
        raise SandboxError(f"sandbox: expected Python at {' or '.join(_PYTHONS)}, which boxes can see; install python3")
    return python


@cache
def has_own_users() -> bool:
    """Whether boxes can have users that nothing else has: the worker is root, and not of a namespace without them."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    last = FIRST_USER + 4 * NUM_USERS
    has_range = any(int(first) <= FIRST_USER and last <= int(first) + int(number) for first, _, number in ranges)
    return os.geteuid() == 0 and has_range


def list_hidden_folders() -> list[str]:
    """Return folders below /usr that are no programs: this project with its task sets, applications, configuration."""
    here = Path(__file__).resolve().parents[3]
    folders = {*map(Path, _NO_PROGRAMS), *(here / name for name in _OWN_PACKAGES)}
    working = Path.cwd()
    if not any(Path(one).is_relative_to(working) for one in _PROGRAMS):
        folders.add(working)  # an image may have its application there, with its keys
    return sorted(str(folder) for folder in folders if folder.is_relative_to("/usr"))


def describe_means(missing: Sequence[str]) -> str:
    """Return what locks processes of boxes down.

    Args:
        missing: what the kernel has no means for.
    """
    return f"seccomp; this kernel lacks {', '.join(missing)}" if missing else "seccomp, landlock"


def describe_limits(tree: CgroupTree | str) -> str:
    """Return which users boxes have, and what limits them.

    Args:
        tree: of cgroups, or why there is none.
    """
    limits = (
        f"memory, processes and CPU by cgroup version {tree.version}"
        if isinstance(tree, CgroupTree)
        else f"memory by a watch and process limits, no cgroup ({tree})"
    )
    return f"{'users of their own' if has_own_users() else f'the user {os.geteuid()} alone'}, {limits}"


def advise(error: str) -> str:
    """Return an error of the programs beneath boxes with what to do about it."""
    remedy = next((remedy for start, remedy in _REMEDIES.items() if error.startswith(start)), "")
    return f"sandbox: {error}{f'; {remedy}' if remedy else ''}"
