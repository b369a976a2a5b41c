"""``task.toml`` of a Harbor task as records: schema 1.0 to 1.4, read strictly, unknown keys kept and named."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast, get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject

Network: TypeAlias = Literal["no-network", "public", "allowlist"]
NEWEST: Final = (1, 4)
"""Version of the schema."""
_MAX_BYTES: Final = 1 << 20
_MAX_SECONDS: Final = 604_800
_UNITS: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_LEGACY_SIZES: Final = {"memory": "memory_mb", "storage": "storage_mb"}
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=_MAX_SECONDS)]
Size: TypeAlias = Annotated[int, msgspec.Meta(gt=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Parent of all tables of the file."""


class Package(_Part, frozen=True, kw_only=True):
    """``[task]``: what a registry knows of the task."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    version: str | None = None
    description: str = ""
    authors: list[JsonObject] = []
    keywords: list[str] = []


class Artifact(_Part, frozen=True, kw_only=True):
    """What a verifier in a box of its own gets of the agent's files."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


class HealthCheck(_Part, frozen=True, kw_only=True):
    """A command that must succeed before the agent begins."""

    command: str
    interval_sec: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    start_interval_sec: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    retries: Annotated[int, msgspec.Meta(ge=1)] = 3


class McpServer(_Part, frozen=True, kw_only=True):
    """A server of tools for the agent."""

    name: str
    transport: str = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}


class Environment(_Part, frozen=True, kw_only=True):
    """``[environment]`` and ``[verifier.environment]``: one box."""

    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None
    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: Annotated[float, msgspec.Meta(gt=0)] | None = None
    memory_mb: Size | None = None
    storage_mb: Size | None = None
    gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gpu_types: list[str] | None = None
    tpu: JsonObject | None = None
    mcp_servers: list[McpServer] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: HealthCheck | None = None
    workdir: str | None = None


class Agent(_Part, frozen=True, kw_only=True):
    """``[agent]``: the phase of the agent."""

    timeout_sec: Seconds | None = None
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None


class CollectHook(_Part, frozen=True, kw_only=True):
    """A command that runs in a service when the agent has ended, and leaves artifacts."""

    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: str | int | None = None


class Verifier(_Part, frozen=True, kw_only=True):
    """``[verifier]``: the phase of the tests."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[CollectHook] = []

    @property
    def mode(self) -> Literal["shared", "separate"]:
        """Where the tests run."""
        return self.environment_mode or ("shared" if self.environment is None else "separate")


class Solution(_Part, frozen=True, kw_only=True):
    """``[solution]``: the reference."""

    env: dict[str, str] = {}


class TaskFile(_Part, frozen=True, kw_only=True):
    """The whole file."""

    schema_version: str = "1.4"
    task: Package | None = None
    metadata: JsonObject = {}
    verifier: Verifier = Verifier()
    agent: Agent = Agent()
    environment: Environment = Environment()
    solution: Solution = Solution()
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[JsonObject] | None = None
    artifacts: list[str | Artifact] = []


def read_task_file(path: Path) -> tuple[TaskFile, list[str]]:
    """Return the file, and the keys that the schema does not know, such as ``environment.colour``.

    Raises: BadInputError: it cannot be read, or a key has another form; the error names both.
    """
    try:
        text = path.read_bytes()
        if len(text) > _MAX_BYTES:
            raise BadInputError(f"{path}: expected at most {_MAX_BYTES >> 20} MB, found more; move what is no setting")
        fields = cast("JsonObject", tomllib.loads(text.decode("utf-8-sig")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: expected a file in TOML, found {error}; correct it") from error
    try:
        found = msgspec.convert(_modernise(path, fields), TaskFile)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise BadInputError(f"{path}: {where.strip('.`') or 'the file'}: {what}; correct it") from error
    _check(path, found)
    return found, sorted(_list_unknown(fields, TaskFile, ""))


def find_verifier(file: TaskFile, *, has_dockerfile: bool) -> tuple[Environment, str] | None:
    """Return the box of the tests and the folder of its image; None: tests share the agent's image.

    Args:
        file: of the task.
        has_dockerfile: there is ``tests/Dockerfile``.
    """
    if file.verifier.mode == "shared":
        return None
    own = file.verifier.environment or file.environment
    if file.verifier.environment is not None and own.docker_image is not None:
        return own, "tests"
    if has_dockerfile:
        return msgspec.structs.replace(own, docker_image=None), "tests"
    return msgspec.structs.replace(own, docker_image=file.environment.docker_image), "environment"


def list_artifacts(file: TaskFile) -> list[Artifact]:
    """Return the artifacts, that which every agent may publish first."""
    listed = [Artifact(source=one) if isinstance(one, str) else one for one in file.artifacts]
    published = "/logs/artifacts"
    is_listed = any(one.source.rstrip("/") == published for one in listed)
    return listed if is_listed else [Artifact(source=published), *listed]


def _modernise(path: Path, fields: JsonObject) -> JsonObject:
    """Return the fields as the newest schema spells them."""
    changed = dict(fields)
    if "version" in changed:
        changed.setdefault("schema_version", changed.pop("version"))
    if isinstance(environment := changed.get("environment"), dict):
        changed["environment"] = _modernise_environment(path, cast("JsonObject", environment), "environment")
    verifier = changed.get("verifier")
    if isinstance(verifier, dict) and isinstance(own := cast("JsonObject", verifier).get("environment"), dict):
        own = _modernise_environment(path, cast("JsonObject", own), "verifier.environment")
        changed["verifier"] = {**cast("JsonObject", verifier), "environment": own}
    return changed


def _modernise_environment(path: Path, fields: JsonObject, where: str) -> JsonObject:
    changed = dict(fields)
    if isinstance(system := changed.get("os"), str):
        changed["os"] = system.lower()
    for old, new in _LEGACY_SIZES.items():
        if isinstance(text := changed.pop(old, None), str):
            try:
                size = int(float(text.strip()[:-1]) * _UNITS[text.strip()[-1:].upper()])
            except (ValueError, KeyError, OverflowError):
                raise BadInputError(
                    f"{path}: {where}.{old}: expected a size such as '2G' or '512M', found {text!r}; write {new}"
                ) from None
            if changed.setdefault(new, size) != size:
                raise BadInputError(f"{path}: {where}: {old} and {new} differ; write {new} alone")
    is_open = changed.pop("allow_internet", None)
    if isinstance(is_open, bool) and changed.get("network_mode") is None and changed.get("allowed_hosts") is None:
        changed["network_mode"] = "public" if is_open else "no-network"
    return changed


def _check(path: Path, file: TaskFile) -> None:
    """Raise for what no type says."""
    version = file.schema_version.split(".")
    if not all(part.isdecimal() for part in version) or tuple(map(int, version))[:2] > NEWEST:
        raise BadInputError(
            f"{path}: schema_version: expected one up to {'.'.join(map(str, NEWEST))}, found {file.schema_version!r};"
            " write the task for a schema that this version reads"
        )
    verifier = file.verifier
    if verifier.environment_mode == "shared" and verifier.environment is not None:
        raise BadInputError(
            f"{path}: verifier.environment_mode: is 'shared' beside [verifier.environment]; remove one of them"
        )
    for one in list_artifacts(file):
        if ".." in one.source.split("/") or not one.source or "\0" in one.source:
            raise BadInputError(f"{path}: artifacts: expected a path without '..', found {one.source!r}; correct it")
    _check_phases(path, file)


def _check_phases(path: Path, file: TaskFile) -> None:
    own = {} if file.verifier.environment is None else {"verifier.environment": file.verifier.environment}
    for where, phase in {
        "environment": file.environment,
        "agent": file.agent,
        "verifier": file.verifier,
        **own,
    }.items():
        if phase.allowed_hosts is not None and phase.network_mode != "allowlist":
            raise BadInputError(f'{path}: {where}.allowed_hosts: needs network_mode = "allowlist" beside it; add it')
    for where, box in {"environment": file.environment, **own}.items():
        if not math.isfinite(box.cpus or 1):
            raise BadInputError(f"{path}: {where}.cpus: expected a finite number, found {box.cpus}; correct it")


def _list_unknown(fields: object, kind: object, where: str) -> Iterator[str]:
    """Yield the keys of tables that their record does not have."""
    known = dict.fromkeys(("version", "allow_internet", *_LEGACY_SIZES))
    for part in _parts(kind):
        if isinstance(fields, list):
            for one in cast("list[object]", fields):
                yield from _list_unknown(one, part, where)
        elif isinstance(fields, dict):
            parts = {one.encode_name: one.type for one in msgspec.structs.fields(part)} | known
            for name, value in cast("JsonObject", fields).items():
                if name not in parts:
                    yield f"{where}{name}"
                elif parts[name] is not None:
                    yield from _list_unknown(value, parts[name], f"{where}{name}.")


def _parts(kind: object) -> Iterator[type[_Part]]:
    """Yield the records that a type annotation names."""
    if isinstance(kind, type) and issubclass(kind, _Part):
        yield kind
    for one in get_args(kind):
        yield from _parts(one)
