"""A worker that runs every hostile snippet in boxes of one kind, and reports what each did, as lines of JSON.

    python attack_run.py KIND USER DIRECTORY SECRET [NAME …]

USER: number of the user to become, or - to stay. NAME: snippets to run, instead of all. The worker has the secret in its command line, variables, memory and a
file; beside it are a victim, sockets, and a box of a neighbour.
"""

import asyncio
import ctypes
import encodings.idna  # which host names need, and a user without rights may not read
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from envs.sandbox import PoolOptions, Resources, SandboxSpec, open_pool
from envs.sandbox.registry import make_kind

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
list_descendants = import_module("leftovers").list_descendants
PRELUDE = (HERE / "prelude.py").read_text()
SNIPPETS = {path.stem: path.read_text() for path in sorted((HERE / "hostile").glob("*.py"))}
AT_ONCE = 6
ATTACK_SECONDS = 2.0
NEIGHBOUR = """
import pathlib, socket
server = socket.create_server(("127.0.0.1", 4711))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0neighbour")
abstract.listen()
for place in ("/work", "/tmp", "/dev/shm"):
    pathlib.Path(place, "neighbour-was-here").write_text("x")
print("up", flush=True)
while True:
    server.accept()[0].close()
"""


class Host:
    """What an attack could reach and harm."""

    def __init__(self, directory: Path, secret: str, stack: ExitStack) -> None:
        self.secret = secret
        self.canary = directory / "canary"
        self.canary.write_text(secret)
        self.victim = subprocess.Popen(["sleep", "600"])
        stack.callback(self.victim.wait)
        stack.callback(self.victim.kill)
        self._listeners = [socket.create_server(("127.0.0.1", 0))]
        for address in (str(directory / "socket"), f"\0{directory.name}"):
            one = socket.socket(socket.AF_UNIX)
            one.bind(address)
            one.listen()
            self._listeners.append(one)
        for one in self._listeners:
            stack.callback(one.close)
        half = len(secret) // 2
        self.facts: dict[str, object] = {
            "canary": str(self.canary),
            "victim": self.victim.pid,
            "worker": os.getpid(),
            "neighbour": 0,  # once it runs
            "neighbour_port": 4711,
            "port": self._listeners[0].getsockname()[1],
            "socket": str(directory / "socket"),
            "abstract": directory.name,
            "user": os.getuid(),
            "addresses": sorted({one[4][0] for one in _addresses() if not one[4][0].startswith("127.")}),
            "host_name": socket.gethostname(),
            "secret_halves": [secret[:half], secret[half:]],
        }

    def find_harm(self) -> str:
        """Return what is no longer as it was; empty: nothing."""
        if self.victim.poll() is not None:
            return "the victim is dead"
        if os.getpriority(os.PRIO_PROCESS, self.victim.pid) != os.getpriority(os.PRIO_PROCESS, 0):
            return "the victim has another priority"
        if not self.canary.exists() or self.canary.read_text() != self.secret:
            return "the canary has changed"
        return ""


def _addresses() -> list[tuple[object, ...]]:
    try:
        return list(socket.getaddrinfo(socket.gethostname(), 80, socket.AF_INET))
    except OSError:
        return []


async def attack_all(kind_name: str, directory: Path, secret: str, names: list[str]) -> None:
    """Run snippets and report each."""
    resources = Resources(memory_mb=256, disk_mb=32, processes=48, files=1024)
    spec = SandboxSpec(kind=kind_name, resources=resources)
    with ExitStack() as stack:
        host = Host(directory, secret, stack)
        kind = make_kind(kind_name)
        async with open_pool(PoolOptions(ready_per_spec=AT_ONCE), kinds=[kind]) as pool:
            support = await kind.probe()
            print(json.dumps({"support": support.reason, "works": support.works}), flush=True)
            if not support.works:
                return
            before = list_descendants()
            neighbour = await pool.take(spec, owner="neighbour")
            host.facts["neighbour"] = min(list_descendants() - before, default=1)
            async with neighbour.open(["python3", "-c", NEIGHBOUR]) as process:
                assert await process.stdout.readline() == b"up\n"
                gate = asyncio.Semaphore(AT_ONCE)

                async def attack(name: str, code: str) -> None:
                    async with gate:
                        began = time.monotonic()
                        box = await pool.take(spec, owner=name)
                        program = f"{PRELUDE}\n{code}"
                        result = await box.exec(
                            ["python3", "-c", program], env={"FACTS": json.dumps(host.facts)}, seconds=ATTACK_SECONDS
                        )
                        answers = (await box.exec(["echo", "fine"], seconds=90)).stdout == b"fine\n"
                        await box.close()
                        fine = await neighbour.exec(["ls", "/work"], seconds=90)
                        said = (result.stdout + result.stderr).decode(errors="replace")
                        found = {
                            "name": name,
                            "status": result.status,
                            "exit_code": result.exit_code,
                            "escapes": [line for line in said.splitlines() if line.startswith("ESCAPED")],
                            "has_secret": secret in said,
                            "harm": host.find_harm(),
                            "answers": answers,
                            "neighbour": fine.stdout.decode(),
                            "tail": said[-500:],
                            "seconds": time.monotonic() - began,
                        }
                        print(json.dumps(found), flush=True)

                await asyncio.gather(*(attack(name, SNIPPETS[name]) for name in names))
            stats = pool.stats()
            print(json.dumps({"failed_starts": stats.failed_starts, "dead": stats.dead_at_hand_out}), flush=True)


async def warm_up(kind_name: str) -> None:
    """Import what is imported late, while this user can read it."""
    async with open_pool(kinds=[make_kind("process")]) as pool:
        box = await pool.take(SandboxSpec(kind="process"), owner="warm-up")
        async with box.open(["echo", "up"]) as process:
            await process.stdout.readline()
    make_kind(kind_name)


def become(user: int) -> None:
    """Become another user for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable again, as a program that this user started
    os.environ["HOME"] = os.environ["TMPDIR"] = "/tmp"


def main() -> None:
    """Run everything."""
    kind_name, user, directory, secret, *names = sys.argv[1:]
    os.environ["SECRET_OF_THE_WORKER"] = secret
    signal.alarm(300)
    if user != "-":
        asyncio.run(warm_up(kind_name))
        become(int(user))
    asyncio.run(attack_all(kind_name, Path(directory), secret, names or list(SNIPPETS)))


if __name__ == "__main__":
    main()
