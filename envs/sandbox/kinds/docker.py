"""Kind ``docker``: boxes that a Docker daemon makes, of any image that it has.

The server of a box is the container's first process. It connects to a socket that the worker binds into the container,
and ends with that connection; the daemon then removes the container. So ``kill -9`` of the worker leaves nothing.
What ended while a daemon was away is found by its label, and removed by the next worker.
"""

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import new_id
from agent_layer.schema.sandbox import HOST_IMAGE, Isolation, Sandbox, SandboxSpec, check_spec
from agent_layer.settings import load_settings
from envs.sandbox.archive import pack_programs
from envs.sandbox.guest.packets import send_packet
from envs.sandbox.guest.skeleton import SOCKET_BUFFERS
from envs.sandbox.host_side.cgroups import SOCKET_SHARE, Cgroup, find_cgroup
from envs.sandbox.host_side.connection import BoxConnection, check_ready
from envs.sandbox.host_side.host_root import HIDING_OPTIONS, list_host_binds
from envs.sandbox.host_side.kind import ServedKind
from envs.sandbox.host_side.launch import Program, launch_program
from envs.sandbox.host_side.rules import check_mounts, check_workdir, writable_mb
from envs.sandbox.host_side.zygote import FIRST_USER, NUM_USERS, find_box_python, list_hidden_folders
from envs.sandbox.kinds.docker_daemon import DaemonFacts, DockerDaemon
from envs.sandbox.spec import PATH, PROCESS_MEMORY, ImageForm, box_variables, image_form

_START_SECONDS: Final = 60.0
_OWNER_LABEL: Final = "agent-layer.owner"
_BOX_LABEL: Final = "agent-layer.box"
_INSIDE: Final = "/run/agent-layer"
"""Where the container finds the socket and the programs."""
_FIRST_USER: Final = FIRST_USER + 2 * NUM_USERS
_MAPPED_USER: Final = 1000
_UNLIMITED: Final = 1 << 20
_OWN_PROCESSES: Final = 3

_PREFIX: Final = "agent-layer-box-"


class DockerKind(ServedKind):
    """Makes boxes by a daemon. Contract: ``SandboxKind``."""

    name = "docker"
    isolation: Isolation = "namespace"
    cost = 40
    images: frozenset[ImageForm] = frozenset({"host", "reference"})
    stops = (
        "Stops: what kind namespace stops, as far as the daemon and its runtime do: the box has no network, no"
        " capability, no new privileges, a read-only image, and the daemon's filter of system calls beside ours. Does"
        " not stop: holes in the host's kernel or in the daemon, and timing attacks on neighbours."
    )

    def __init__(self) -> None:
        super().__init__()
        self._address = load_settings().docker_host
        self._daemon: DockerDaemon | None = None
        self._reaper: Program | None = None
        self._folder = Path()
        """Where containers find sockets and programs; the reaper removes it."""
        self._name = f"{_process_name()}.{new_id()}"
        self._facts = DaemonFacts()
        self._lock = asyncio.Lock()
        self._users = count()
        self._version = ""

    def describe(self) -> str:
        """Return what boxes use on this machine."""
        users = f"the user {_MAPPED_USER} of the daemon's range" if self._facts.has_own_users else "users of their own"
        lacking = [name for name, has in self._limits() if not has]
        limits = f"no limit of {', '.join(lacking)} by the daemon" if lacking else "memory, processes and CPU by cgroup"
        return f"daemon {self._version} at {self._address}, {users}, {limits}, seccomp"

    def _limits(self) -> list[tuple[str, bool]]:
        return [("memory", self._facts.MemoryLimit), ("processes", self._facts.PidsLimit)]

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""
        check_spec(spec)
        if image_form(spec) == "directory":
            raise BadInputError(
                f"sandbox: kind docker has images by name, found the directory {spec.image}; import it"
                " ('docker import'), or name kind session"
            )
        check_mounts(spec)
        check_workdir(spec)
        daemon = await self._connect()
        box_id = new_id()
        try:
            async with asyncio.timeout(_START_SECONDS), AsyncExitStack() as undo:
                shared = self._folder / box_id
                undo.callback(shutil.rmtree, shared, ignore_errors=True)
                listener = _share(shared)
                undo.callback(listener.close)
                user = _MAPPED_USER if self._facts.has_own_users else _FIRST_USER + next(self._users) % NUM_USERS
                config = await _container_config(daemon, spec, shared, user)
                config["Labels"] = {_OWNER_LABEL: self._name, _BOX_LABEL: box_id, "agent-layer.lease": owner}
                container = await daemon.create(f"agent-layer-{box_id}", config)
                life = _BoxHandle(daemon, container)
                async with AsyncExitStack() as unmake:
                    unmake.push_async_callback(life.end)
                    life.cgroup = find_cgroup(await daemon.start(container))
                    connection = BoxConnection(await _accept(listener, user, self._facts))
                    unmake.callback(connection.close)
                    rules = _rules(spec, user, has_cgroup=life.cgroup is not None)
                    check_ready(await connection.ask("ready", rules))
                    unmake.pop_all()
        except (OSError, TimeoutError) as error:
            raise SandboxError(f"sandbox: no container was up, {error or 'it takes too long'}; try again") from error
        return self.add_box(box_id, spec, owner=owner, connection=connection, life=life)

    async def close(self) -> None:
        """End all boxes and the connection."""
        await super().close()
        if self._daemon is not None and self._reaper is not None:
            with suppress(OSError):
                send_packet(self._reaper.end, {"removed": True})
            self._reaper.end.close()
            await self._reaper.stop()
            await self._daemon.close()
            self._daemon = self._reaper = None

    async def _connect(self) -> DockerDaemon:
        async with self._lock:
            if self._daemon is None:
                daemon = DockerDaemon(_socket_path(self._address))
                try:
                    self._version, self._facts = await daemon.version(), await daemon.facts()
                    await _sweep(daemon)
                    self._reaper = await self._start_reaper()
                except BaseException:
                    await daemon.close()
                    raise
                self._daemon = daemon
            return self._daemon

    async def _start_reaper(self) -> Program:
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._folder.chmod(0o711)
        config = {
            "daemon": _socket_path(self._address),
            "label": f"{_OWNER_LABEL}={self._name}",
            "left": [str(self._folder)],
        }
        return await launch_program("reaper", find_box_python(), config)


class _BoxHandle:
    """A container, and its cgroup where this machine shows it. Contract: ``BoxHandle``."""

    def __init__(self, daemon: DockerDaemon, container: str) -> None:
        self._daemon = daemon
        self._container = container
        self.cgroup: Cgroup | None = None

    async def end(self) -> None:
        """Have the daemon kill and remove it."""
        await self._daemon.remove(self._container)


def _socket_path(address: str) -> str:
    if not address.startswith("unix://"):
        raise SandboxError(
            f"sandbox: expected DOCKER_HOST as unix:///path of a daemon on this machine, found {address}; run the"
            " worker where the daemon is"
        )
    return address.removeprefix("unix://")


def _process_name() -> str:
    """Return a name of this process that no other process on any machine has had."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}.{os.getpid()}.{_started(os.getpid())}"


def _started(pid: int) -> str:
    """Return when a process started, in ticks since boot; empty: there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


async def _sweep(daemon: DockerDaemon) -> None:  # kept: named by what it does to other workers' leavings
    """Remove containers and folders of workers of this machine that have ended."""
    boot = _process_name().partition(".")[0]
    for row in await daemon.list_containers(_OWNER_LABEL):
        where, pid, started, *_ = row.Labels[_OWNER_LABEL].split(".")
        if where != boot or _started(int(pid)) != started:
            await daemon.remove(row.Id)
    _sweep_folders()


def _sweep_folders() -> None:  # kept: it blocks, which async functions may not
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not _started(int(pid)):
            subprocess.run(["rm", "-rf", "--", folder], check=False)  # of any depth, which shutil does not remove


def _share(shared: Path) -> socket.socket:
    """Put the programs and a listening socket into a directory that others may enter, but not list."""
    shared.mkdir()
    (shared / "programs").write_bytes(pack_programs())
    (shared / "programs").chmod(0o644)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(shared / "socket"))
    (shared / "socket").chmod(0o777)
    shared.chmod(0o711)
    listener.listen(1)
    listener.setblocking(False)  # noqa: FBT003  # its only argument
    return listener


async def _accept(listener: socket.socket, user: int, facts: DaemonFacts) -> socket.socket:
    """Return the connection of the container. Raises: SandboxError: another user's process made it."""
    end, _ = await asyncio.get_running_loop().sock_accept(listener)
    _, peer, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if peer != user and not facts.has_own_users:
        end.close()
        raise SandboxError(f"sandbox: user {peer} connected in place of the container; try again")
    return end


async def _container_config(daemon: DockerDaemon, spec: SandboxSpec, shared: Path, user: int) -> dict[str, object]:
    resources = spec.resources
    disk, options = writable_mb(resources) << 20, f"rw,exec,nosuid,nodev,uid={user},gid={user}"
    own = {
        spec.workdir: f"{options},mode=755,size={disk * 5 // 8},nr_inodes={resources.files}",
        "/tmp": f"{options},mode=1777,size={disk // 4},nr_inodes={resources.files}",
    }
    binds = [f"{shared}:{_INSIDE}:ro", *(f"{place}:{place}:ro" for place in spec.mounts)]
    if spec.image == HOST_IMAGE:
        image = await daemon.ensure_host_image()
        binds += [f"{path}:{path}:ro" for path in list_host_binds()]
        own |= dict.fromkeys(filter(os.path.isdir, list_hidden_folders()), HIDING_OPTIONS)
    else:
        image = spec.image
        own |= {path: "ro,size=4k" for path in await daemon.list_volumes(image) if path not in own}
    return {
        "Image": image,
        "Entrypoint": ["python3", "-I", f"{_INSIDE}/programs", "container", f"{_INSIDE}/socket"],
        "Cmd": [],
        "Env": [f"PATH={PATH}"],
        "User": f"{user}:{user}",
        "WorkingDir": "/",
        "Hostname": "box",
        "NetworkDisabled": True,
        "HostConfig": {
            "AutoRemove": True,
            "Binds": binds,
            "CapDrop": ["ALL"],
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "KernelMemoryTCP": (resources.memory_mb << 20) // SOCKET_SHARE,
            "Memory": resources.memory_mb << 20,
            "MemorySwap": resources.memory_mb << 20,
            "NanoCpus": max(10_000_000, int(resources.cpus * 1e9)),
            "NetworkMode": "none",
            "PidsLimit": resources.processes + _OWN_PROCESSES,
            "ReadonlyRootfs": True,
            "SecurityOpt": ["no-new-privileges"],
            "ShmSize": max(4096, disk // 8),
            "Sysctls": {f"net.ipv4.{name}": sizes for name, sizes in SOCKET_BUFFERS.items()},
            "Tmpfs": own,
        },
    }


def _rules(spec: SandboxSpec, user: int, *, has_cgroup: bool) -> dict[str, object]:  # kept: a record, deep in start
    resources = spec.resources
    memory_bytes = resources.memory_mb << 20
    return {
        "workdir": spec.workdir,
        "variables": box_variables(spec, home=spec.workdir, tmp="/tmp"),
        "limits": {
            "processes": _UNLIMITED,  # the daemon limits them
            "open_files": resources.open_files,
            "file_bytes": writable_mb(resources) << 20,
            "memory_bytes": None if has_cgroup else PROCESS_MEMORY * memory_bytes,
        },
        "watched_bytes": None if has_cgroup else memory_bytes,
        "max_watches": None,
        "user": user,
        "has_image": spec.image != HOST_IMAGE,
        "writable": [spec.workdir, "/tmp", "/dev/shm"],
    }
