"""Cgroups of boxes: limits on memory, processes and CPU of all that runs in a box, of version 1 or 2.

A worker's boxes have cgroups below its own, in one folder per version 2 tree or version 1 controller.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.schema import new_id
from agent_layer.schema.sandbox import Resources

_NEEDED: Final = ("memory", "pids")
_OPTIONAL: Final = ("cpu", "cpuacct")
_PERIOD_US: Final = 100_000
_OWN_PROCESSES: Final = 3
"""Processes of the box itself, beside what the spec allows."""
SOCKET_SHARE: Final = 8
"""Part of the memory that buffers of TCP and UDP may have beside it: version 1 counts them apart, or not at all."""
_PREFIX: Final = "agent-layer-"
_MAX_REMOVAL_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.002


class CgroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a box has used so far; None: the kernel does not count it."""

    oom_kills: int | None = None
    """Processes that the kernel killed for memory, the box's own or the machine's."""
    memory_hits: int | None = None
    """Times that the box was at its own limit of memory, and nothing could be freed; version 1 counts none."""
    cpu_seconds: float | None = None
    num_processes: int | None = None
    """Processes and threads that it has now, those of its own included."""
    peak_memory_mb: float | None = None
    """Since the box began; with version 1 since ``forget_peak``."""


class Cgroup:
    """The cgroup of one box."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        """By controller; all the same with version 2."""

    @property
    def directories(self) -> set[Path]:
        """Directories in which it is."""
        return set(self._folders.values())

    def limit(self, resources: Resources) -> None:
        """Set its limits. Raises: OSError: the kernel refuses them."""
        memory, processes = resources.memory_mb << 20, resources.processes + _OWN_PROCESSES
        quota_us = max(1000, int(resources.cpus * _PERIOD_US))
        if self._is_version_2:
            self._write("memory", "memory.max", str(memory))
            self._write("memory", "memory.swap.max", "0", is_needed=False)
            self._write("cpu", "cpu.max", f"{quota_us} {_PERIOD_US}", is_needed=False)
        else:
            self._write("memory", "memory.limit_in_bytes", str(memory))
            self._write("memory", "memory.memsw.limit_in_bytes", str(memory), is_needed=False)
            sockets = str(memory // SOCKET_SHARE)
            self._write("memory", "memory.kmem.tcp.limit_in_bytes", sockets, is_needed=False)
            self._write("cpu", "cpu.cfs_period_us", str(_PERIOD_US), is_needed=False)
            self._write("cpu", "cpu.cfs_quota_us", str(quota_us), is_needed=False)
        self._write("pids", "pids.max", str(processes))

    def add_process(self, pid: int) -> None:
        """Move a process into it; its future children follow."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def forget_peak(self) -> None:
        """Begin a new peak where only that shows whether the limit was hit; it has been before, if it ever was."""
        if not self._is_version_2:
            self._write("memory", "memory.max_usage_in_bytes", "0", is_needed=False)

    def usage(self) -> CgroupUsage:
        """Return what it has used."""
        if self._is_version_2:
            events, cpu = self._pairs("memory", "memory.events"), self._pairs("memory", "cpu.stat")
            used_us = cpu.get("usage_usec")
            cpu_seconds, peak = None if used_us is None else used_us / 1e6, self._number("memory", "memory.peak")
        else:
            events, used_ns = self._pairs("memory", "memory.oom_control"), self._number("cpuacct", "cpuacct.usage")
            cpu_seconds = None if used_ns is None else used_ns / 1e9
            peak = self._number("memory", "memory.max_usage_in_bytes")
        return CgroupUsage(
            oom_kills=events.get("oom_kill"),
            memory_hits=events.get("oom"),
            cpu_seconds=cpu_seconds,
            num_processes=self._number("pids", "pids.current"),
            peak_memory_mb=None if peak is None else peak / (1 << 20),
        )

    def remove(self) -> bool:
        """Remove it; return whether nothing is left: the kernel refuses while it still accounts for a process."""
        for directory in self.directories:
            with suppress(OSError):
                directory.rmdir()
        return not any(directory.exists() for directory in self.directories)

    @property
    def _is_version_2(self) -> bool:
        return (self._folders["memory"] / "memory.max").exists()

    def _write(self, controller: str, name: str, text: str, *, is_needed: bool = True) -> None:
        try:
            (self._folders[controller] / name).write_text(text)
        except (OSError, KeyError):
            if is_needed:
                raise

    def _pairs(self, controller: str, name: str) -> dict[str, int]:
        text = self._read(controller, name)
        return {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if len(line.split()) == 2}

    def _number(self, controller: str, name: str) -> int | None:
        text = self._read(controller, name).strip()
        return int(text) if text.isdecimal() else None

    def _read(self, controller: str, name: str) -> str:
        with suppress(OSError, KeyError):
            return (self._folders[controller] / name).read_text()
        return ""


def find_cgroup(pid: int, root: Path = Path("/")) -> Cgroup | None:
    """Return the cgroup in which a process is, to read what it uses; None: this process cannot see it.

    Args:
        pid: of the process.
        root: where ``proc`` and ``sys`` are.
    """
    folders = dict(_find_directories(root, str(pid)))
    return Cgroup(folders) if "memory" in folders and all(place.is_dir() for place in folders.values()) else None


async def remove_cgroup(cgroup: Cgroup) -> None:
    """Remove a cgroup as soon as the kernel lets go of its last process, which has ended."""
    deadline = time.monotonic() + _MAX_REMOVAL_SECONDS
    while not cgroup.remove() and time.monotonic() < deadline:  # noqa: ASYNC110  # the kernel gives no notice
        await asyncio.sleep(_POLL_SECONDS)


class CgroupTree:
    """Folders below this worker's own cgroups, in which boxes get theirs."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    @property
    def directories(self) -> set[Path]:
        """Directories to remove at the end, with all below."""
        return set(self._folders.values())

    @property
    def version(self) -> int:
        """1 or 2."""
        return 2 if len(self.directories) == 1 else 1

    def add_cgroup(self, box_id: str, resources: Resources) -> Cgroup:
        """Create the cgroup of a box. Raises: OSError: the kernel refuses it."""
        cgroup = Cgroup({controller: folder / box_id for controller, folder in self._folders.items()})
        try:
            for directory in cgroup.directories:
                directory.mkdir()
            cgroup.limit(resources)
        except OSError:
            cgroup.remove()
            raise
        return cgroup

    def remove(self) -> None:
        """Remove the folders; boxes have removed theirs."""
        for directory in self.directories:
            with suppress(OSError):
                directory.rmdir()


def make_cgroup_tree(root: Path = Path("/")) -> CgroupTree | str:
    """Create this worker's folders; where that is not possible, return why.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    places = dict(_find_directories(root))
    if missing := [name for name in _NEEDED if name not in places]:
        return f"no cgroup controller {' or '.join(missing)} is mounted"
    _sweep(places)
    name = f"{_PREFIX}{os.getpid()}-{new_id()[-8:]}"
    tree = CgroupTree({controller: place / name for controller, place in places.items()})
    try:
        for place in set(places.values()):
            _delegate(place)
        for directory in tree.directories:
            directory.mkdir()
            _delegate(directory)
        tree.add_cgroup("probe", Resources()).remove()
    except OSError as error:
        tree.remove()
        return f"{error.filename or 'its cgroup'}: {error.strerror}"
    return tree


def _find_directories(root: Path, process: str = "self") -> Iterator[tuple[str, Path]]:
    """Yield a process's directory for each controller that boxes can use."""
    own: dict[str, str] = {}
    with suppress(OSError):
        for line in (root / f"proc/{process}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own |= dict.fromkeys(controllers.split(","), path)
    for controllers, within, mounted in _cgroup_mounts(root):
        place = root / mounted.lstrip("/")
        available = controllers or _words(place / "cgroup.controllers")
        for controller in (*_NEEDED, *_OPTIONAL):
            path = own.get(controller if controllers else "")
            if controller in available and path is not None:
                yield controller, place / os.path.relpath(path, within)


def _cgroup_mounts(root: Path) -> Iterator[tuple[set[str], str, str]]:
    """Yield controllers (none: version 2), the cgroup that is mounted, and where."""
    with suppress(OSError):
        for line in (root / "proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind, _, options = after.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                within, mounted = before.split()[3:5]
                yield set(options.split(",")) if kind == "cgroup" else set[str](), within, mounted


def _words(file: Path) -> set[str]:
    try:
        return set(file.read_text().split())
    except OSError:
        return set()


def _delegate(place: Path) -> None:
    """Let folders below have the controllers (version 2). Raises: OSError: EBUSY, the place holds processes."""
    control = place / "cgroup.subtree_control"
    if not control.exists():
        return
    missing = [name for name in ("memory", "pids", "cpu") if name not in control.read_text().split()]
    if missing:
        control.write_text(" ".join(f"+{name}" for name in missing))


def _sweep(places: Mapping[str, Path]) -> None:
    """Remove folders of workers that died together with their keepers."""
    for place in set(places.values()):
        for folder in place.glob(f"{_PREFIX}*-*"):
            pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                for directory, _, _ in os.walk(folder, topdown=False):
                    with suppress(OSError):
                        Path(directory).rmdir()
