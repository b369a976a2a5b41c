"""Sandboxes under load: 50 actions on a repository beside ``docker exec``, and a thousand starts at once."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType

from bench_table import Figure

from agent_layer.errors import AgentLayerError
from agent_layer.infra import quantile
from agent_layer.schema.sandbox import Resources, Sandbox, SandboxSpec
from envs.sandbox import PoolOptions, SandboxPool, make_kind, open_pool

__all__ = ["measure_actions", "measure_starts", "run_docker_daemon"]

NUM_STARTS = 1000
NUM_ROUNDS = 5
SECONDS = 300.0
"""Longest wait for a box of the burst."""
TESTS = Path(__file__).parents[1]
PREPARE = r"""
mkdir -p src && cd src
for number in $(seq 40); do
  printf 'def value_%s(n):\n    "Return n times %s."\n    return n * %s\n' $number $number $number > part_$number.py
done
printf 'import unittest\nfrom part_3 import value_3\n\n\nclass Test(unittest.TestCase):\n' > test_parts.py
printf '    def test_value(self):\n        self.assertEqual(value_3(2), 6)\n' >> test_parts.py
cd .. && export GIT_CONFIG_GLOBAL=/dev/null && echo __pycache__/ > .gitignore
git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm begin
"""
ACTIONS = (
    "ls -la src | head -20",
    "git log --oneline | head -5",
    "grep -rn 'return n' src | sort | head -10",
    "sed -n 1,40p src/part_7.py",
    "find . -name '*.py' -not -path './.git/*' | sort | head -30",
    "sed -i 's/Return n/Give n/' src/part_7.py",
    "git diff --stat",
    "cd src && python3 -m unittest -q 2>&1 | tail -3",
    "wc -l src/*.py | tail -1",
    "git checkout -q src/part_7.py && git status --short",
) * 5
Act = Callable[[str], Awaitable[str]]


def measure_actions(_: Path) -> list[Figure]:
    """Measure 50 actions in a session, by ``docker exec`` and on the host, in turns."""
    with run_docker_daemon() as address:
        return asyncio.run(_measure_actions(address))


def measure_starts(_: Path) -> list[Figure]:
    """Start a thousand boxes at once, of each kind that works here."""
    return [figure for name in ("namespace", "session") for figure in asyncio.run(_measure_starts(name))]


@contextmanager
def run_docker_daemon():
    """Yield the address of a daemon, one that is named or one of our own; None: there is none."""
    if "DOCKER_HOST" in os.environ:
        yield os.environ["DOCKER_HOST"]
        return
    folder = ModuleType("tests")  # veRL installs a package of this name, which would be found first
    folder.__path__ = [str(TESTS)]
    sys.modules["tests"] = folder
    with import_module("tests.integration.sandbox.docker_daemon").run_docker_daemon() as address:
        if address:
            os.environ["DOCKER_HOST"] = address
        yield address
        os.environ.pop("DOCKER_HOST", None)


async def _measure_actions(docker: str | None) -> list[Figure]:
    spec = SandboxSpec(kind="session", resources=Resources(disk_mb=64, processes=256))
    if reason := await _find_reason("session"):
        return [Figure("sandbox, 50 actions on a repository", reason, "", "", "")]
    async with AsyncExitStack() as ends:
        pool = await ends.enter_async_context(open_pool())
        box = await pool.take(spec, owner="bench")
        folder = ends.enter_context(TemporaryDirectory(prefix="al-bench-"))
        ways: dict[str, Act] = {"host": _on_host(folder), "session": _in_box(box)}
        if docker is not None and not await _find_reason("docker"):
            contained = await pool.take(SandboxSpec(kind="docker", resources=spec.resources), owner="bench")
            ways["docker"] = _by_docker_exec(docker, contained)
        for act in ways.values():
            await act(PREPARE)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        answers: dict[str, list[str]] = {}
        for _ in range(NUM_ROUNDS):
            for name, act in ways.items():
                began = time.perf_counter()
                answers[name] = [await act(command) for command in ACTIONS]
                seconds[name].append(time.perf_counter() - began)
        await box.close()
    _check_answers(answers)
    host, ours = median(seconds["host"]), median(seconds["session"])
    whole = Figure(
        "sandbox, 50 actions on a repository, ms (the same on the host)",
        f"{ours * 1000:.0f}",
        f"{host * 1000:.0f}",
        f"{ours / host:.2f}",
        "",
    )
    what = "sandbox, 50 actions, overhead beyond the actions, ms (docker exec)"
    if "docker" not in ways:
        return [whole, Figure(what, f"{(ours - host) * 1000:.0f}", "no daemon here", "", "≤ 0.5x")]
    peer = median(seconds["docker"])
    more, most = max(0.0, ours - host), peer - host
    return [whole, Figure(what, f"{more * 1000:.0f}", f"{most * 1000:.0f}", f"{more / most:.2f}", "≤ 0.5x")]


def _check_answers(answers: dict[str, list[str]]) -> None:
    """What does not name users, times and folders is the same everywhere."""
    for number in (2, 3, 4, 6, 8, 9):
        found = {one[number] for one in answers.values()}
        if len(found) != 1:
            raise RuntimeError(f"{ACTIONS[number]!r}: expected one answer everywhere, found {found}")


def _on_host(folder: str) -> Act:
    async def act(command: str) -> str:
        return await _run("bash", "-c", f"cd {folder} && {command}")

    return act


def _in_box(box: Sandbox) -> Act:
    async def act(command: str) -> str:
        return (await box.exec(["bash", "-c", command], seconds=60)).stdout.decode()

    return act


def _by_docker_exec(address: str, box: Sandbox) -> Act:
    container = f"agent-layer-{box.id}"

    async def act(command: str) -> str:
        return await _run("docker", "-H", address, "exec", "-w", box.spec.workdir, container, "bash", "-c", command)

    return act


async def _run(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = await process.communicate()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{argv}: ended with {process.returncode}, {errors.decode()[-400:]}")
    return output.decode()


async def _measure_starts(name: str) -> list[Figure]:
    if reason := await _find_reason(name):
        return [Figure(f"sandbox, {NUM_STARTS} starts at once, kind {name}", reason, "", "", "")]
    async with open_pool(PoolOptions(), kinds=[make_kind(name)]) as pool:
        spec = SandboxSpec(kind=name)
        await _start(pool, spec)  # the first one starts what all share
        began = time.monotonic()
        ended = await asyncio.gather(*(_start(pool, spec) for _ in range(NUM_STARTS)), return_exceptions=True)
        rate = NUM_STARTS / (time.monotonic() - began)
    failed = [one for one in ended if isinstance(one, BaseException)]
    if unexpected := [one for one in failed if not isinstance(one, AgentLayerError)]:
        raise unexpected[0]
    seconds = [one for one in ended if isinstance(one, float)]
    if failed:
        print(Counter(str(one)[:120] for one in failed), file=sys.stderr)
    p50, p99 = quantile(seconds, 0.5) or 0.0, quantile(seconds, 0.99) or 0.0
    return [
        Figure(
            f"sandbox, {name}, {NUM_STARTS} starts at once to first exec, s: p50, p99",
            f"{p50:.1f}, {p99:.1f}",
            "",
            "",
            "",
        ),
        Figure(f"sandbox, {name}, the same, starts a second; failures", f"{rate:.0f}; {len(failed)}", "", "", "0 fail"),
    ]


async def _start(pool: SandboxPool, spec: SandboxSpec) -> float:
    """Return the seconds until a command has run in a fresh box."""
    began = time.monotonic()
    box = await pool.take(spec, owner="bench", seconds=SECONDS)
    try:
        ran = await box.exec(["true"], seconds=60)
        if ran.exit_code != 0:
            raise AgentLayerError(f"the first command ended with {ran.status}")
        return time.monotonic() - began
    finally:
        await box.close()


async def _find_reason(name: str) -> str | None:
    """Return why a kind does not work here; None: it does."""
    kind = make_kind(name)
    try:
        support = await kind.probe()
        return None if support.works else support.reason or "it does not work here"
    finally:
        await kind.close()
