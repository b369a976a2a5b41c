"""The part of a Docker daemon's HTTP interface that boxes need, over its Unix socket."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema import content_hash
from envs.sandbox.host_side.host_root import pack_host_root

if TYPE_CHECKING:
    import aiohttp

_API: Final = "http://docker/v1.40"
_CALL_SECONDS: Final = 60.0
_REMOVAL_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.02
_NO_SUCH, _CONFLICT, _FAILED = 404, 409, 400
_T = TypeVar("_T")


class DaemonVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says of itself."""

    Version: str


class DaemonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon can do."""

    SecurityOptions: list[str] | None = None
    MemoryLimit: bool = False
    PidsLimit: bool = False

    @property
    def has_own_users(self) -> bool:
        """Whether it maps the users of containers, so that it has a few of them only."""
        return any(one in option for option in self.SecurityOptions or () for one in ("name=rootless", "name=userns"))


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A container in a list."""

    Id: str
    Labels: dict[str, str] = {}


class _State(msgspec.Struct, frozen=True, kw_only=True):
    Pid: int = 0


class _Inspected(msgspec.Struct, frozen=True, kw_only=True):
    State: _State


class _ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    Volumes: dict[str, object] | None = None


class _Image(msgspec.Struct, frozen=True, kw_only=True):
    Config: _ImageConfig | None = None


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    message: str


class _Created(msgspec.Struct, frozen=True, kw_only=True):
    Id: str


class DockerDaemon:
    """Connection to a daemon. Every call raises ``SandboxError`` when the daemon does not answer or refuses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._client: aiohttp.ClientSession | None = None

    async def version(self) -> str:
        """Return its version."""
        return (await self._ask("GET", "/version", DaemonVersion)).Version

    async def facts(self) -> DaemonFacts:
        """Return what it can do."""
        return await self._ask("GET", "/info", DaemonFacts)

    async def list_volumes(self, image: str) -> list[str]:
        """Return the directories for which an image declares volumes.

        Raises: BadInputError: the daemon has no such image.
        """
        status, body = await self._call("GET", f"/images/{image}/json")
        if status == _NO_SUCH:
            raise BadInputError(f"sandbox: the daemon has no image {image!r}; run 'docker pull {image}'")
        config = msgspec.json.decode(_checked(status, body), type=_Image).Config
        return sorted((config.Volumes if config else None) or {})

    async def ensure_host_image(self) -> str:
        """Return the name of an image with nothing but directories and a few lines of configuration."""
        content = pack_host_root()
        name = f"agent-layer-host:{content_hash(content)[:12]}"
        status, _ = await self._call("GET", f"/images/{name}/json")
        if status == _NO_SUCH:
            repository, _, tag = name.partition(":")
            query = urlencode({"fromSrc": "-", "repo": repository, "tag": tag})
            _checked(*await self._call("POST", f"/images/create?{query}", content))
        return name

    async def create(self, name: str, config: Mapping[str, object]) -> str:
        """Create a container; return its id."""
        body = msgspec.json.encode(config)
        return (await self._ask("POST", f"/containers/create?{urlencode({'name': name})}", _Created, body)).Id

    async def start(self, container: str) -> int:
        """Start it; return the id of its first process, as the daemon sees it.

        Raises: BadInputError: its image has no Python.
        """
        status, body = await self._call("POST", f"/containers/{container}/start")
        if status >= _FAILED and b"python3" in body:
            raise BadInputError("sandbox: the image has no python3, which boxes need; add it, or name another image")
        _checked(status, body)
        return (await self._ask("GET", f"/containers/{container}/json", _Inspected)).State.Pid

    async def list_containers(self, label: str) -> Sequence[ContainerRow]:
        """Return all containers that have a label."""
        query = urlencode({"all": "1", "filters": msgspec.json.encode({"label": [label]}).decode()})
        return await self._ask("GET", f"/containers/json?{query}", list[ContainerRow])

    async def remove(self, container: str) -> None:
        """Kill and remove it with its volumes; return when it is gone."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while time.monotonic() < deadline:
            status, body = await self._call("DELETE", f"/containers/{container}?force=1&v=1")
            if status == _NO_SUCH:
                return
            if status >= _FAILED and status != _CONFLICT:  # it is being removed already
                _checked(status, body)
            await asyncio.sleep(_POLL_SECONDS)
        raise SandboxError(f"sandbox: container {container[:12]} is not gone after {_REMOVAL_SECONDS:g} s; remove it")

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _ask(self, method: str, path: str, answer: type[_T], body: bytes | None = None) -> _T:
        return msgspec.json.decode(_checked(*await self._call(method, path, body)), type=answer)

    async def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        import aiohttp  # noqa: PLC0415  # other kinds need none

        client = self._client = self._client or aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=self._path), timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS)
        )
        kind = "application/x-tar" if path.startswith("/images/create") else "application/json"
        try:
            async with client.request(method, f"{_API}{path}", data=body, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SandboxError(
                f"sandbox: no Docker daemon answers at {self._path}, {error}; start it, or set DOCKER_HOST"
            ) from error


def _checked(status: int, body: bytes) -> bytes:
    """Return the body of an answer. Raises: SandboxError: the daemon refused."""
    if status < _FAILED:
        return body
    try:
        message = msgspec.json.decode(body, type=_Refusal).message
    except msgspec.DecodeError:
        message = body.decode(errors="replace")
    raise SandboxError(f"sandbox: the Docker daemon answers {status}: {message.strip()}")
