"""A worker that runs hostile snippets in boxes of one kind, and reports what each did, as lines of JSON.

    python attack_run.py KIND USER DIRECTORY SECRET [NAME …]

USER: number of the user to become, or - to stay. NAME: snippets to run, instead of all. The worker has the secret in
its command line, variables, memory and a file; beside it are a victim, sockets, and a box of a neighbour.
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

from envs.sandbox import Resources, Sandbox, SandboxPool, SandboxSpec, open_pool
from envs.sandbox.registry import make_kind
from envs.sandbox.host_side import box as served_box

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
list_descendants = import_module("leftovers").list_descendants
make_patient = import_module("patience").make_patient
PRELUDE = (HERE / "prelude.py").read_text()
SNIPPETS = {path.stem: path.read_text() for path in sorted((HERE / "hostile").glob("*.py"))}
ENDLESS = frozenset(
    "fork_bomb_detached fork_bomb_exponential loop_ignoring_signals memory_bomb_of_many out_of_memory_steered"
    " server_starved sleeping_without_output stopped stopped_by_its_child".split()
)
"""Attacks that only their time limit ends; all others end by themselves."""
INHERITING = frozenset(
    "capabilities_regained descriptors_inherited descriptors_of_init descriptors_opened_again environment_searched"
    " limits_raised memory_searched objects_searched server_impersonated".split()
)
"""Attacks on what a command gets from the server that forked it. The server forks the first command of a box ahead of
time, and each later one when it is asked for: these attack as both."""
ENDLESS_SECONDS, MAX_SECONDS = 0.5, 60.0
NUM_CHAINS = 3
LOOK = """
import os
def list_files():
    for place in ("/work", "/tmp", "/dev/shm", "/run"):
        for top, folders, names in os.walk(place):
            yield from (os.path.join(top, name) for name in folders + names)
KEPT = ("Cap", "Cpus_allowed", "Gid", "Groups", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "Uid", "Umask")
print(len([name for name in os.listdir("/proc") if name.isdigit()]), os.nice(0), sorted(list_files()))
print(open("/proc/self/limits").read(), [line for line in open("/proc/self/status") if line.startswith(KEPT)])
"""
"""What a command finds: processes, files, and all that it inherits. An attack that leaves it as it is in a fresh box
cannot influence the next one."""
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


class Attacks:
    """Runs snippets in boxes of a pool, beside a neighbour.

    Attacks follow each other in a box for as long as they leave it like a fresh one. Those that do not end by themselves
    have boxes of their own, at the same time, and before all others.
    """

    def __init__(self, pool: SandboxPool, spec: SandboxSpec, host: Host, neighbour: Sandbox) -> None:
        self._pool, self._spec, self._host, self._neighbour = pool, spec, host, neighbour
        self._fresh_look = b""

    async def run(self, names: list[str]) -> None:
        """Run them, and report each."""
        box = await self._take()
        self._fresh_look = await _look(box)
        assert self._fresh_look or box.kind == "process", "a fresh box answers nothing"
        await box.close()
        endless, chained = ([name for name in names if (name in ENDLESS) == wanted] for wanted in (True, False))
        boxes = [await self._take() for _ in endless]
        await asyncio.gather(*(self._attack_alone(box, name) for box, name in zip(boxes, endless, strict=True)))
        first = [name for name in names if name in INHERITING]
        chains = [(first[at::NUM_CHAINS], chained[at::NUM_CHAINS]) for at in range(NUM_CHAINS)]
        await asyncio.gather(*(self._attack_in_turn(*chain) for chain in chains))

    async def _take(self) -> Sandbox:
        return await self._pool.take(self._spec, owner="attacker")

    async def _attack_alone(self, box: Sandbox, name: str) -> None:
        """Repeat it with more time where this machine is too crowded for it even to begin."""
        seconds, found = ENDLESS_SECONDS, await self._attack(box, name, ENDLESS_SECONDS)
        while not found["has_begun"] and (seconds := 2 * seconds) < MAX_SECONDS:
            found = await self._attack(box, name, seconds)
        await self._report(box, [found])

    async def _attack_in_turn(self, first: list[str], others: list[str]) -> None:
        """Begin each box with an attack that has to be the first in one, if any is left."""
        while first or others:
            box, found, is_fresh = await self._take(), list[dict[str, object]](), True
            while is_fresh and (others or (first and not found)):
                name = (others if found or not first else first).pop(0)
                found.append(await self._attack(box, name, MAX_SECONDS))
                is_fresh = found[-1]["look"] == self._fresh_look.decode()
            await self._report(box, found)

    async def _attack(self, box: Sandbox, name: str, seconds: float) -> dict[str, object]:
        began, host = time.monotonic(), self._host
        command = ["python3", "-c", f"{PRELUDE}\n{SNIPPETS[name]}"]
        result = await box.exec(command, env={"FACTS": json.dumps(host.facts)}, seconds=seconds)
        written = (result.stdout + result.stderr).decode(errors="replace")
        return {
            "name": name,
            "has_begun": "begun\n" in written,
            "status": result.status,
            "exit_code": result.exit_code,
            "escapes": [line for line in written.splitlines() if line.startswith("ESCAPED")],
            "has_secret": host.secret in written,
            "harm": host.find_harm(),
            "look": (await _look(box)).decode(errors="replace"),
            "tail": written[-500:],
            "seconds": time.monotonic() - began,
        }

    async def _report(self, box: Sandbox, found: list[dict[str, object]]) -> None:
        """Report attacks, with whether the box answers after the last of them and what its neighbour has."""
        answers = (await box.exec(["echo", "fine"], seconds=MAX_SECONDS)).stdout == b"fine\n"
        await box.close()
        neighbour = (await self._neighbour.exec(["ls", "/work"], seconds=MAX_SECONDS)).stdout.decode()
        for one in found:
            print(json.dumps(one | {"answers": answers or one is not found[-1], "neighbour": neighbour}), flush=True)


async def _look(box: Sandbox) -> bytes:
    if box.kind == "process":  # it would find all of this machine
        return b""
    return (await box.exec(["python3", "-c", LOOK], seconds=MAX_SECONDS)).stdout


async def attack_all(kind_name: str, directory: Path, secret: str, names: list[str]) -> None:
    """Run snippets and report each."""
    resources = Resources(memory_mb=256, disk_mb=32, processes=48, files=1024)
    spec = SandboxSpec(kind=kind_name, resources=resources)
    with ExitStack() as stack:
        host = Host(directory, secret, stack)
        kind = make_patient(make_kind(kind_name))
        async with open_pool(kinds=[kind]) as pool:
            support = await kind.probe()
            print(json.dumps({"support": support.reason, "works": support.works}), flush=True)
            if not support.works:
                return
            before = list_descendants()
            neighbour = await pool.take(spec, owner="neighbour")
            host.facts["neighbour"] = min(list_descendants() - before, default=1)
            async with neighbour.open(["python3", "-c", NEIGHBOUR]) as process:
                assert await process.stdout.readline() == b"up\n"
                await Attacks(pool, spec, host, neighbour).run(names)
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
    signal.alarm(1800)
    served_box.KILL_SECONDS = MAX_SECONDS  # a crowded machine takes longer to end several bombs
    if user != "-":
        asyncio.run(warm_up(kind_name))
        become(int(user))
    asyncio.run(attack_all(kind_name, Path(directory), secret, names or list(SNIPPETS)))


if __name__ == "__main__":
    main()
