"""What sandboxes could leave on a machine: processes below one, cgroups, mounts, directories."""

import os
import tempfile
from pathlib import Path

DAEMON_FOLDERS = "/var/tmp/docker-"
"""Where Docker daemons of tests keep their data, with the number of the test process behind it."""


def list_descendants(pid=None):
    """Process ids below a process, by the children that each thread lists."""
    found, waiting = set(), [pid or os.getpid()]
    while waiting:
        for children in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                pids = [int(one) for one in children.read_text().split()]
            except OSError:
                continue
            found.update(pids)
            waiting += pids
    return found


def list_cgroups(pid):
    """Folders in which the boxes of a worker have cgroups."""
    return {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if f"/agent-layer-{pid}-" in folder}


def list_directories(pid):
    """Directories of a worker's boxes."""
    return set(Path(tempfile.gettempdir()).glob(f"agent-layer-box-{pid}-*"))


def list_mounts():
    """Mounts that this process sees, without those of daemons that other test processes run."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted(one for one in mounts if not one.startswith(DAEMON_FOLDERS) or f"-{os.getpid()}-" in one)


def started_at(pid):
    """Return when a process started, in ticks since boot: numbers of processes begin again at 1 one day."""
    return int(_read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[19])


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def list_descriptors():
    """Open files, sockets and pipes of this process."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir() if path.is_symlink())


def find_by_argument(pids, argument):
    return [pid for pid in pids if f"\0{argument}\0" in _read(Path(f"/proc/{pid}/cmdline"))]


def _read(path):
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
