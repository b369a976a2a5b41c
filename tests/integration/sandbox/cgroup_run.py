"""Boxes that run out of memory, each at another limit, or of CPU; reports how that ended, as JSON.

python cgroup_run.py KIND [starved]
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
STARVED = {
    "sleeps": "import time; print(flush=True); time.sleep(60)",
    "spins": "print(flush=True)\nwhile True: pass",
    "spins in many": """
import os
for _ in range(40):
    if os.fork() == 0: break
else: print(flush=True)
while True: pass
""",
    "forks": """
import os
print(flush=True)
while True:
    try: os.fork()
    except OSError: pass
""",
}


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


async def starve(name):
    """End commands in boxes that the machine gives a hundredth of a CPU."""
    kind = make_kind(name)
    found = {}
    try:
        for way, program in STARVED.items():
            box = await kind.start(SandboxSpec(kind=name, resources=Resources(memory_mb=64)), owner="test")
            if box._life.cgroup is None:
                break
            async with box.open(["python3", "-c", program]) as process:
                await process.stdout.readline()
                for place in box._life.cgroup.directories:
                    for file, text in (("cpu.max", "1000 100000"), ("cpu.cfs_quota_us", "1000")):
                        if (place / file).exists():
                            (place / file).write_text(text)
            found[way] = box.ended.cause if box.ended else None
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


asyncio.run((starve if "starved" in sys.argv else main)(sys.argv[1]))
