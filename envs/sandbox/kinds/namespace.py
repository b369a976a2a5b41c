"""Kind ``namespace``: boxes on the host's kernel with a view of their own, made in milliseconds by a warm zygote."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import new_id
from envs.sandbox import ADDRESS_SPACE, Isolation, Sandbox, SandboxSpec, Support, box_variables, check_spec
from envs.sandbox.inside import receive_packet, send_packet
from envs.sandbox.served import (
    BoxConnection,
    Cgroup,
    CgroupTree,
    CgroupUsage,
    Program,
    ServedSandbox,
    check_ready,
    launch_program,
    make_cgroup_tree,
    remove_cgroup,
)

_START_SECONDS: Final = 10.0
_PYTHONS: Final = ("/usr/local/bin/python3", "/usr/bin/python3")
"""Interpreters that boxes can see, in the order in which commands find them."""
_FIRST_USER: Final = 0x70000000
"""First of the users that boxes have when the worker is root: beyond what machines give to people."""
_NUM_USERS: Final = 65536
_MOST_SLOTS: Final = _NUM_USERS // 2 - 1
_USER: Final = 1000
"""Number inside the box."""
_OWN_PACKAGES: Final = ("agent_layer", "envs", "tracer", "trainer_adapter")
_NO_PROGRAMS: Final = ("/usr/src", "/usr/home", "/usr/local/src", "/usr/local/etc")
_PROGRAMS: Final = ("/usr/bin", "/usr/lib", "/usr/share", "/usr/local/bin", "/usr/local/lib", "/usr/local/share")
_TAKEN: Final = ("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "old", "proc", "run", "sbin", "tmp", "usr")
_REMEDIES: Final = {  # by how the error of the system call begins
    "unshare": "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone or"
    " kernel.apparmor_restrict_unprivileged_userns), or run the container with --security-opt seccomp=unconfined",
    "mount": "run the worker where mounts are allowed: outside a container, or with"
    " --security-opt systempaths=unconfined --security-opt apparmor=unconfined",
}


class _ZygoteLostError(SandboxError):
    """The zygote has ended; another one can be started."""


class NamespaceKind:
    """Makes boxes from one zygote. Contract: ``SandboxKind``."""

    name = "namespace"
    isolation: Isolation = "namespace"
    cost = 10
    stops = (
        "Stops: reading or changing the host's files, processes, users, secrets and network; more memory, processes,"
        " files, output and time than allowed. Does not stop: holes in the host's kernel, which it shares, and timing"
        " attacks on neighbours."
    )

    def __init__(self) -> None:
        self._probing = asyncio.Lock()
        self._lock = asyncio.Lock()
        self._zygote: _Zygote | None = None
        self._support: Support | None = None
        self._slots = count(1)
        self._open: set[ServedSandbox] = set()

    async def probe(self) -> Support:
        """Start a box and end it."""
        async with self._probing:
            if self._support is None:
                self._support = await self._try_one()
        return self._support

    async def _try_one(self) -> Support:
        try:
            box = await self.start(SandboxSpec(), owner="probe")
        except SandboxError as error:
            return Support(works=False, reason=str(error).removeprefix("sandbox: "))
        await box.close()
        return Support(works=True, reason=self._zygote.describe() if self._zygote else "")

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""
        _check(spec)
        try:
            return await self._start(await self._running_zygote(), spec, owner)
        except _ZygoteLostError:  # for example killed since its last box
            return await self._start(await self._running_zygote(), spec, owner)

    async def _start(self, zygote: "_Zygote", spec: SandboxSpec, owner: str) -> Sandbox:
        try:
            async with asyncio.timeout(_START_SECONDS):
                return await self._make_box(zygote, spec, owner)
        except OSError as error:  # a time-out too
            raise SandboxError(f"sandbox: no box could be made, {error or 'it takes too long'}; try again") from error

    async def _make_box(self, zygote: "_Zygote", spec: SandboxSpec, owner: str) -> Sandbox:
        box_id = new_id()
        async with AsyncExitStack() as undo:
            cgroup = zygote.add_cgroup(box_id, spec)
            if cgroup is not None:
                undo.callback(cgroup.remove)
            ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs:
                slot = 1 + next(self._slots) % _MOST_SLOTS
                pid, pidfd = await zygote.spawn(_box_config(spec, slot, has_cgroup=cgroup is not None), theirs)
            life = _Life(pidfd, cgroup)
            undo.push_async_callback(life.end)
            if cgroup is not None:
                cgroup.add_process(pid)
            connection = BoxConnection(ours)
            undo.callback(connection.close)
            zygote.missing = check_ready(await connection.ask("ready", {"go": True}), advise=_advise)
            undo.pop_all()
        box = ServedSandbox(box_id, self.name, spec, owner=owner, connection=connection, life=life)
        box.start_sibling = lambda spec, owner: self.start(spec, owner=owner)
        self._open.add(box)
        life.on_end = lambda: self._open.discard(box)
        return box

    async def close(self) -> None:
        """End all boxes and the zygote."""
        await asyncio.gather(*(box.close() for box in list(self._open)))
        if self._zygote is not None:
            await self._zygote.stop()
            self._zygote = None

    async def _running_zygote(self) -> "_Zygote":
        async with self._lock:
            if self._zygote is not None and not self._zygote.is_running:
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await _start_zygote()
            return self._zygote


class _Zygote:
    """The running zygote: answers one request at a time."""

    def __init__(self, program: Program, tree: CgroupTree | str) -> None:
        self.missing: Sequence[str] = ()
        """What the kernel has no means for, as the newest box reports it."""
        self._program = program
        self._tree = tree
        self._lock = asyncio.Lock()
        self._is_broken = False

    @property
    def is_running(self) -> bool:
        return self._program.is_running and not self._is_broken

    def describe(self) -> str:
        """Return what its boxes use."""
        limits = (
            f"memory, processes and CPU by cgroup version {self._tree.version}"
            if isinstance(self._tree, CgroupTree)
            else f"memory by a watch and process limits, no cgroup ({self._tree})"
        )
        users = "users of their own" if _has_own_users() else f"the user {os.geteuid()} alone"
        lacking = f"; this kernel lacks {', '.join(self.missing)}" if self.missing else ""
        return f"{users}, {limits}, seccomp{'' if self.missing else ', landlock'}{lacking}"

    def add_cgroup(self, box_id: str, spec: SandboxSpec) -> Cgroup | None:
        """Create the cgroup of a box; None: this machine has no writable ones."""
        return self._tree.add_cgroup(box_id, spec.resources) if isinstance(self._tree, CgroupTree) else None

    async def spawn(self, config: dict[str, object], box_end: socket.socket) -> tuple[int, int]:
        """Have the first process of a box forked; return its id and descriptor."""
        async with self._lock:
            if self._is_broken:
                raise _ZygoteLostError("sandbox: its zygote has ended; try again")
            try:
                async with asyncio.timeout(_START_SECONDS):
                    send_packet(self._program.end, {"spawn": config}, [box_end.fileno()])
                    fields, descriptors = await _receive(self._program.end)
            except BaseException:
                self._is_broken = True  # the answer of this box would be taken for that of the next
                raise
        if not descriptors:
            raise SandboxError(_advise(str(fields.get("error"))))
        return int(str(fields["pid"])), descriptors[0]

    async def stop(self) -> None:
        """End it, with all of its boxes."""
        self._program.end.close()
        try:
            await self._program.stop()
        finally:
            if isinstance(self._tree, CgroupTree):
                self._tree.remove()


async def _start_zygote() -> _Zygote:
    python = next(filter(os.path.exists, _PYTHONS), None)
    if python is None:
        raise SandboxError(f"sandbox: expected Python at {' or '.join(_PYTHONS)}, which boxes can see; install python3")
    tree = make_cgroup_tree()
    config: dict[str, object] = {
        "outside_user": _FIRST_USER if _has_own_users() else None,
        "hidden": _hidden_folders(),
        "left": [str(one) for one in tree.directories] if isinstance(tree, CgroupTree) else [],
    }
    program = await launch_program("zygote", python, config)
    zygote = _Zygote(program, tree)
    try:
        async with asyncio.timeout(_START_SECONDS):
            fields, _ = await _receive(program.end)
    except BaseException as error:
        await zygote.stop()
        if isinstance(error, TimeoutError):
            raise SandboxError(f"sandbox: its zygote was not up within {_START_SECONDS:g} s; try again") from error
        raise
    if "error" in fields:
        await zygote.stop()
        raise SandboxError(_advise(str(fields["error"])))
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
        raise _ZygoteLostError("sandbox: its zygote has ended; it needs Python 3.10 or newer, and memory")
    return packet.fields, packet.descriptors


class _Life:
    """The processes of a box, by the descriptor of the first, and its cgroup."""

    def __init__(self, pidfd: int, cgroup: Cgroup | None) -> None:
        self._pidfd = pidfd
        self._cgroup = cgroup
        self.on_end = lambda: None

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
        if self._cgroup is not None:
            await remove_cgroup(self._cgroup)
        self.on_end()

    def usage(self) -> CgroupUsage:
        """Return what its cgroup counts."""
        return CgroupUsage() if self._cgroup is None else self._cgroup.usage()


def _check(spec: SandboxSpec) -> None:
    check_spec(spec)
    if spec.image != "host":
        raise BadInputError(
            f"sandbox: kind namespace has the image 'host' only, found {spec.image!r}; name another kind"
        )
    if (top := spec.workdir.split("/")[1]) in _TAKEN:
        raise BadInputError(
            f"sandbox: the box has its own /{top}, found workdir {spec.workdir}; choose one such as /work"
        )


def _box_config(spec: SandboxSpec, slot: int, *, has_cgroup: bool) -> dict[str, object]:
    has_own_users = _has_own_users()
    resources = spec.resources
    memory_bytes = resources.memory_mb << 20
    return {
        # numbers inside, and in the zygote's own namespace
        "users": [[0, 2 * slot], [_USER, 2 * slot + 1]] if has_own_users else [[_USER, 0]],
        "user": _USER,
        "workdir": spec.workdir,
        "disk_mb": resources.disk_mb,
        "files": resources.files,
        "variables": box_variables(spec, home=spec.workdir, tmp="/tmp"),
        "limits": {
            "processes": resources.processes + (0 if has_own_users else 1),  # the server of the box has the same user
            "open_files": resources.open_files,
            "file_bytes": resources.disk_mb << 20,
            "memory_bytes": None if has_cgroup else ADDRESS_SPACE * memory_bytes,
        },
        "watched_bytes": None if has_cgroup else memory_bytes,
    }


@cache
def _has_own_users() -> bool:
    """Whether boxes can have users that nothing else has: the worker is root, and not of a namespace without them."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    last = _FIRST_USER + _NUM_USERS
    has_range = any(int(first) <= _FIRST_USER and last <= int(first) + int(number) for first, _, number in ranges)
    return os.geteuid() == 0 and has_range


def _hidden_folders() -> list[str]:
    """Return folders below /usr that are no programs: this project with its task sets, applications, configuration."""
    here = Path(__file__).resolve().parents[3]
    folders = {*map(Path, _NO_PROGRAMS), *(here / name for name in _OWN_PACKAGES)}
    working = Path.cwd()
    if not any(Path(one).is_relative_to(working) for one in _PROGRAMS):
        folders.add(working)  # an image may have its application there, with its keys
    return sorted(str(folder) for folder in folders if folder.is_relative_to("/usr"))


def _advise(error: str) -> str:
    """Return an error of the programs beneath boxes with what to do about it."""
    remedy = next((remedy for start, remedy in _REMEDIES.items() if error.startswith(start)), "")
    return f"sandbox: {error}{f'; {remedy}' if remedy else ''}"
