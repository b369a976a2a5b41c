"""What a task needs that no box of this machine gives it: found by reading the task, before anything runs."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from envs.tasksets.harbor.directory import HarborTask
from envs.tasksets.harbor.dockerfile import NETWORK_PROGRAMS, find_base, list_commands, list_unfit, parse_dockerfile
from envs.tasksets.harbor.task_file import Environment, Network, find_verifier, list_artifacts

NeedKind: TypeAlias = Literal["image", "build", "network", "live process", "device", "steps", "service", "other"]
_COMPOSE: Final = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "singularity-compose.yaml")
_PORTS: Final = re.compile(
    r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?:[:\"'\s,)]+)\d{2,5}|\b(?:nc|ncat|netstat|ss|lsof|pgrep|pidof|systemctl|docker)\s"
    r"|psutil\.(?:process_iter|net_connections)"
)
"""Texts of tests that name a port of this machine, or look at running processes."""
_STARTS: Final = re.compile(r"[^&>|]&\s*$|\bnohup\b|subprocess\.Popen|\bsetsid\b|Thread\(|serve_forever", re.MULTILINE)
"""Texts of tests that start what they talk to."""
_HERE: Final = re.compile(r"localhost|127\.0\.0\.1|--no-index|--offline")
_VARIABLE: Final = re.compile(r"\$\{(\w+)(:-[^}]*)?\}")
_MAX_TEST_BYTES: Final = 1 << 20
_TEST_SUFFIXES: Final = (".sh", ".py", ".js", ".ts", ".rb", ".pl")


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a task needs and does not get."""

    kind: NeedKind
    what: str
    """What in the task, and what to do where something can be done."""


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What a user allows tasks."""

    network: bool = False
    shared_verifier: bool = False
    """Tests may look for processes of the agent: its files travel to them, its processes do not."""


def resolve_network(task: HarborTask, allowed: Allowed) -> tuple[Network, Network]:
    """Return the network of the agent's phase and of the tests'.

    Where the file says nothing, the format means a public one: it is one where that is allowed, and none elsewhere.
    """
    file, unsaid = task.file, "public" if allowed.network else "no-network"
    own = file.verifier.environment
    base = file.environment.network_mode or unsaid
    tests = file.verifier.network_mode or (base if own is None else own.network_mode or unsaid)
    return file.agent.network_mode or base, tests


def list_needs(task: HarborTask, has_image: Callable[[str], bool], allowed: Allowed) -> Iterator[Need]:
    """Yield what a task needs and does not get.

    Args:
        task: it.
        has_image: whether an image of this name is here.
        allowed: what the user allows.
    """
    file, directory = task.file, task.directory
    if file.steps:
        yield Need(kind="steps", what=f"{len(file.steps)} steps ([[steps]]); split it into tasks of one step")
        return
    yield from _list_environment_needs(task, file.environment, "environment", has_image, allowed)
    verifier = find_verifier(file, has_dockerfile=(directory / "tests" / "Dockerfile").is_file())
    if verifier is not None and verifier[1] == "tests":
        yield from _list_environment_needs(task, *verifier, has_image, allowed, table="verifier.environment")
    yield from _list_network_needs(task, allowed)
    yield from _list_test_needs(directory / "tests" / "test.sh")
    if (directory / "trajectory.json").exists():
        yield Need(kind="other", what="trajectory.json: a context that the agent begins with")
    yield from _list_live_needs(task, allowed)
    for where, env in {
        "environment.env": file.environment.env,
        "verifier.env": file.verifier.env,
        "solution.env": file.solution.env,
    }.items():
        for name, default in _VARIABLE.findall(" ".join(env.values())):
            if not default:
                yield Need(
                    kind="other", what=f"{where}: ${{{name}}} of this machine; give it a default: ${{{name}:-…}}"
                )


def _list_test_needs(script: Path) -> Iterator[Need]:  # kept: list_needs is at its limit
    if not script.is_file():
        yield Need(kind="other", what="tests/test.sh is missing; write one")
    elif script.read_bytes()[:256].partition(b"\n")[0].endswith(b"\r"):
        yield Need(kind="other", what="tests/test.sh ends its lines with CR LF, which no shell takes; write LF")


def find_fetches(text: str) -> list[str]:
    """Return the programs of a shell's text that fetch something from another machine."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#") and not _HERE.search(line))
    return list(dict.fromkeys(name for line in lines for name in NETWORK_PROGRAMS.findall(line)))


def fill_variables(env: dict[str, str]) -> dict[str, str]:
    """Return variables with the defaults of those that they name; this machine's own never enter a box."""
    return {name: _VARIABLE.sub(lambda found: found[2][2:] if found[2] else "", text) for name, text in env.items()}


def _list_environment_needs(  # what is looked at, and what is there
    task: HarborTask,
    one: Environment,
    folder: str,
    has_image: Callable[[str], bool],
    allowed: Allowed,
    table: str = "environment",
) -> Iterator[Need]:
    if one.os != "linux":
        yield Need(kind="device", what=f"{table}.os = {one.os!r}")
    if one.gpus or one.tpu:
        yield Need(kind="device", what=f"{table}: a GPU or TPU")
    for server in one.mcp_servers:
        yield Need(kind="service", what=f"{table}.mcp_servers: {server.name!r}")
    for name in _COMPOSE:
        if (task.directory / folder / name).is_file():
            yield Need(kind="service", what=f"{folder}/{name}: services of their own")
            return
    if one.docker_image is not None:
        if not has_image(one.docker_image):
            yield _lacks_image(one.docker_image)
    else:
        yield from _list_build_needs(task, folder, has_image, allowed)


def _list_build_needs(
    task: HarborTask, folder: str, has_image: Callable[[str], bool], allowed: Allowed
) -> Iterator[Need]:
    file = task.directory / folder / "Dockerfile"
    if not file.is_file():
        yield Need(kind="image", what=f"{folder}/Dockerfile or docker_image, found neither; write one")
        return
    instructions = parse_dockerfile(file)
    for what in list_unfit(instructions):
        kind = "live process" if "ENTRYPOINT" in what else "build"
        yield Need(kind=kind, what=f"{folder}/Dockerfile {what}; build it elsewhere, and name it as docker_image")
    if (base := find_base(instructions)) and base != "scratch" and not has_image(base):
        yield _lacks_image(base)
    for name in () if allowed.network else find_fetches(list_commands(instructions)):
        yield Need(
            kind="network", what=f"{folder}/Dockerfile runs {name!r}; build it elsewhere, and name it as docker_image"
        )


def _lacks_image(name: str) -> Need:
    return Need(kind="image", what=f"{name}; name a local one: --image-map {name}=DIRECTORY")


def _list_network_needs(task: HarborTask, allowed: Allowed) -> Iterator[Need]:
    modes = resolve_network(task, allowed)
    for phase, mode in zip(("agent", "verifier"), modes, strict=True):
        if mode == "allowlist" or (mode == "public" and not allowed.network):
            yield Need(kind="network", what=f"{phase}: network_mode = {mode!r}; allow it with --allow-network")
    if modes[1] != "public":
        for name in find_fetches(_read_tests(task, (".sh",))):
            yield Need(kind="network", what=f"tests run {name!r}; put what it fetches into the image")


def _list_live_needs(task: HarborTask, allowed: Allowed) -> Iterator[Need]:
    if task.file.verifier.collect:
        yield Need(kind="live process", what="[[verifier.collect]]: commands beside what the agent left running")
    for one in list_artifacts(task.file):
        if one.service not in (None, "main"):
            yield Need(kind="service", what=f"artifacts of service {one.service!r}")
    text = _read_tests(task, _TEST_SUFFIXES)
    if not allowed.shared_verifier and (found := _PORTS.search(text)) is not None and not _STARTS.search(text):
        yield Need(
            kind="live process",
            what=f"tests look for a running process ({found[0].strip()!r}), and only files travel to them; where they"
            " start it themselves, allow it with --shared-verifier",
        )


def _read_tests(task: HarborTask, suffixes: tuple[str, ...]) -> str:
    texts = list[str]()
    folder = task.directory / "tests"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix in suffixes and path.is_file() and path.stat().st_size <= _MAX_TEST_BYTES:
            texts.append(path.read_text("utf-8", "replace"))
    return "\n".join(texts)
