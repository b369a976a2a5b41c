"""Boxes that run out of memory, each at another limit; reports how that ended, as JSON.

python cgroup_run.py KIND
"""

import asyncio
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.registry import make_kind

sys.path.insert(0, str(Path(__file__).parent))
list_descendants = import_module("leftovers").list_descendants
RESOURCES = Resources(memory_mb=64, disk_mb=16, processes=20)
TAKE = "import sys; x = bytearray(int(sys.argv[1]) << 20); print(len(x))"
FORK = """
import os, time
number = 0
try:
    while os.fork():
        number += 1
except OSError:
    print(number, flush=True)
else:
    time.sleep(5)
"""


def set_limit(folder, mb):
    """Limit a cgroup of either version."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (folder / name).exists():
            (folder / name).write_text(str(mb << 20))


async def main(name):
    kind = make_kind(name)
    found = {}
    try:
        box = await kind.start(SandboxSpec(kind=name, resources=RESOURCES), owner="test")
        if (cgroup := box._life.cgroup) is None:
            print(json.dumps({"version": None}))
            return
        (place,) = filter(has_memory, cgroup.directories)
        found["version"] = 2 if (place / "memory.max").exists() else 1
        found["forks"] = int((await box.exec(["python3", "-c", FORK], seconds=60)).stdout)

        async def take(mb):
            return (await box.exec(["python3", "-c", TAKE, str(mb)], seconds=60)).status

        found["little"] = await take(8)
        found["own limit"] = await take(400)
        set_limit(place.parent, 40)  # that of all boxes, as the machine's or a container's around the worker
        found["limit above, after its own was hit"] = await take(56)
        set_limit(place.parent, 4096)
        found["own limit again"] = await take(400)
        command = asyncio.create_task(box.exec(["sleep", "60"], seconds=60))
        while not (sleeping := find_sleepers()):  # noqa: ASYNC110  # another process brings it
            await asyncio.sleep(0.05)
        os.kill(find_parent(sleeping[0]), signal.SIGKILL)
        found["killed server"] = (await command).status, box.ended.cause
    finally:
        await kind.close()
    print(json.dumps(found))


def has_memory(folder):
    return (folder / "memory.max").exists() or (folder / "memory.limit_in_bytes").exists()


def find_sleepers():
    def is_sleep(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
        except OSError:
            return False

    return [pid for pid in list_descendants() if is_sleep(pid)]


def find_parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


asyncio.run(main(sys.argv[1]))
