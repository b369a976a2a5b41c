"""Worlds behind a server of OpenEnv, over its WebSocket; each attempt has a session, so a world, of its own.

    openenv:http://127.0.0.1:8000?level=2      the options go to each reset, beside the task's seed

Tools that a server lists are tools of the model, and a plain text ends the attempt. Other servers take the model's
text: of an action with one required text, that text; else one JSON object. The rewards of the steps add up, and are the
report of the agent: the world is trusted, and the model sends it nothing but actions. A step without a reward has 0.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count as count_from
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType

from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.schema import JsonObject, RewardSpec, Split, Task, as_json_object, as_json_objects, derive_seed
from envs.adapters.extras import read_options, run_apart
from envs.env_context import EnvContext, ToolCalls, ToolDefinition
from envs.environment import StepResult
from envs.tasksets import Script

_SECONDS: Final = 120.0
"""Longest wait for one answer of a server."""
_MAX_BYTES: Final = 64 << 20
_TOOL_ACTIONS: Final = ("Action", "CallToolAction", "ListToolsAction")
"""Titles of the action of a server that offers tools."""
_MISTAKES: Final = ("VALIDATION_ERROR", "EXECUTION_ERROR", "INVALID_JSON")
"""What an action can bring about: the policy learns of it, and its world goes on."""


class _Server(msgspec.Struct):
    """What a server says of itself."""

    version: str
    action: JsonObject
    """JSON Schema; empty: it offers tools."""
    tools: list[JsonObject]


class _Input(msgspec.Struct):
    """Input of a task."""

    url: str
    reset: JsonObject
    action: JsonObject = {}
    tools: list[ToolDefinition] = []


class OpenEnvSet:
    """The world of an OpenEnv server under many seeds. Contract: ``TaskSet``.

    Args: address: of the server, with options for its reset behind a question mark.
    """

    levels = range(1)
    agent = "envs.adapters.openenv:OpenEnvEnvironment"

    def __init__(self, address: str) -> None:
        self.name = f"openenv:{address}"
        url, self._options = read_options(address)
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of a port or an IPv6 address that is none
            is_address = False
        if not is_address:
            raise BadInputError(
                f"task set {self.name!r}: expected openenv:http://HOST:PORT, found {address!r}; correct it"
            )
        self._url = url.rstrip("/")

    @property
    def version(self) -> str:
        """The server's.

        Raises: UnreachableError: it does not answer.
        """
        return self._server.version

    @cached_property
    def _server(self) -> _Server:
        return run_apart(_ask_server(self._url))

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks that differ by the seed of their reset, without end where ``count`` is None.

        Raises: BadInputError: no such level exists, or the seed is negative.
        """
        if level not in self.levels or seed < 0:
            raise BadInputError(f"task set {self.name!r}: expected level 0 and a seed of 0 or more")
        for index in count_from() if count is None else range(count):
            # servers take seeds of 31 bits; the last bit keeps the splits apart
            drawn = (derive_seed(self.name, split, seed, index) >> 23) * 2 + (split == "eval")
            given = {"url": self._url, "reset": {**self._options, "seed": drawn}}
            yield Task(
                id=f"openenv-{split}-{seed}-{index}",
                run="openenv",
                split=split,
                task_type="openenv",
                input={**given, "action": self._server.action, "tools": self._server.tools},
                seed=drawn,
                env=self.agent,
                agent=self.agent,
                scorer="agent",
                rewards={"reward": RewardSpec()},
            )

    def solve(self, task: Task) -> Script:  # noqa: ARG002  # the protocol's
        """Return an empty script: a world names no solution."""
        return Script(name="reference")

    def rewrites(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's
        """Return nothing."""
        return []

    def mutants(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's
        """Return nothing."""
        return []

    def cheats(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's
        """Return nothing."""
        return []


def open_set(address: str) -> OpenEnvSet:
    """Return the task set of a server."""
    return OpenEnvSet(address)


class OpenEnvEnvironment:
    """One session of a server. Contract: ``Environment``."""

    tools: Sequence[ToolDefinition] = ()

    def __init__(self, context: EnvContext) -> None:
        try:
            self._input = msgspec.convert(context.task.input, _Input)
        except msgspec.ValidationError as error:
            raise BadInputError(
                f"task: expected one of openenv:URL, {error}; write it with 'tasksets write'"
            ) from error
        self.tools = self._input.tools
        self._session: _Session | None = None
        self._num_steps = 0

    async def reset(self, task: Task) -> StepResult:  # noqa: ARG002  # the context knows the task
        """Begin a session; return what the world shows, and how to act in it.

        Raises: UnreachableError: the server does not answer, has no room, or cannot reset.
        """
        self._session = await _Session.open(self._input.url)
        answer = await self._session.ask({"type": "reset", "data": self._input.reset})
        text = _show(answer.observation)
        if not self._input.tools:
            text = f"{text}\n\n{_explain_action(self._input.action)}".lstrip()
        return StepResult(observation=text, done=answer.done)

    async def step(self, action: str | ToolCalls) -> StepResult:
        """Act. The policy reads what the server refuses.

        Raises: UnreachableError: the connection is lost.
        """
        if isinstance(action, ToolCalls):
            return await self._call_tools(action)
        if self._input.tools:
            return StepResult(reward=0.0, done=True)
        try:
            data = _read_action(action, self._input.action)
        except ValueError as error:
            return StepResult(observation=f"error: {error}. {_explain_action(self._input.action)}", reward=0.0)
        answer = await self._act(data)
        return StepResult(observation=_show(answer.observation), reward=answer.reward or 0.0, done=answer.done)

    def state(self) -> object:
        """Return the number of actions."""
        return {"num_steps": self._num_steps}

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()

    async def _call_tools(self, action: ToolCalls) -> StepResult:
        shown: list[str] = []
        reward = 0.0
        is_done = False
        for call in action.calls:
            if is_done:
                shown.append("the episode has ended")
                continue
            answer = await self._act({"type": "call_tool", "tool_name": call.name, "arguments": call.arguments})
            shown.append(_show_tool(answer.observation))
            reward += answer.reward or 0.0
            is_done = answer.done
        return StepResult(observation=shown, reward=reward, done=is_done)

    async def _act(self, data: JsonObject) -> "_Answer":
        assert self._session is not None
        self._num_steps += 1
        return await self._session.ask({"type": "step", "data": data}, may_fail=True)


class _Answer(msgspec.Struct):
    """What a server shows."""

    observation: JsonObject = {}
    reward: float | bool | None = None
    done: bool = False


class _Session:
    """One WebSocket of a server."""

    def __init__(self, url: str, client: ClientSession, socket: ClientWebSocketResponse) -> None:
        self._url = url
        self._client = client
        self._socket = socket

    @classmethod
    async def open(cls, url: str) -> "_Session":
        client = ClientSession(timeout=ClientTimeout(total=None, connect=_SECONDS))
        try:
            socket = await client.ws_connect(f"{url}/ws", max_msg_size=_MAX_BYTES)
        except (ClientError, OSError) as error:
            await client.close()
            raise _unreachable(url, repr(error)) from error
        return cls(url, client, socket)

    async def ask(self, message: JsonObject, *, may_fail: bool = False) -> _Answer:
        """Return the answer; with ``may_fail`` a mistake of the policy is one, too."""
        try:
            async with asyncio.timeout(_SECONDS):
                await self._socket.send_str(json.dumps(message))
                received = await self._socket.receive()
        except (ClientError, OSError, TimeoutError) as error:
            raise _unreachable(self._url, repr(error)) from error
        if received.type is not WSMsgType.TEXT:
            raise _unreachable(self._url, f"the session ended ({received.type.name})")
        try:
            answer = as_json_object(json.loads(received.data))
            data = as_json_object(answer.get("data"))
            if answer.get("type") != "error":
                return msgspec.convert(data, _Answer)
        except (ValueError, msgspec.ValidationError) as error:
            raise _unreachable(self._url, f"its answer is none of OpenEnv's, {error}") from error
        if may_fail and str(data.get("code")) in _MISTAKES:
            return _Answer(observation={"error": str(data.get("message"))})
        raise _unreachable(self._url, f"{data.get('code')}: {data.get('message')}")

    async def close(self) -> None:
        """End the session; a server that does not listen any more needs none."""
        try:
            if not self._socket.closed:
                await self._socket.send_str('{"type": "close"}')
        except (ClientError, OSError):
            pass
        finally:
            await self._socket.close()
            await self._client.close()


async def _ask_server(url: str) -> _Server:
    try:
        async with ClientSession(timeout=ClientTimeout(total=_SECONDS), raise_for_status=True) as client:
            schema = await (await client.get(f"{url}/schema")).json()
            metadata = as_json_object(await (await client.get(f"{url}/metadata")).json())
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        raise _unreachable(url, repr(error)) from error
    action = as_json_object(as_json_object(schema).get("action"))
    version = f"{metadata.get('name')} {metadata.get('version')}"
    if action.get("title") not in _TOOL_ACTIONS:
        return _Server(version=version, action=action, tools=[])
    session = await _Session.open(url)
    try:
        answer = await session.ask({"type": "step", "data": {"type": "list_tools"}})
    finally:
        await session.close()
    tools = [
        {
            "name": tool.get("name"),
            "description": tool.get("description") or "",
            "parameters": tool.get("input_schema") or tool.get("inputSchema") or {"type": "object"},
        }
        for tool in as_json_objects(answer.observation.get("tools"))
    ]
    return _Server(version=version, action={}, tools=tools)


def _unreachable(url: str, why: str) -> UnreachableError:
    return UnreachableError(f"OpenEnv server {url}: {why}; start it, or correct the address")


def _read_action(text: str, schema: Mapping[str, object]) -> JsonObject:
    """Return the action that a text stands for.

    Raises: ValueError: it stands for none.
    """
    name = _only_text(schema)
    stripped = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        value: object = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        if name is None:
            raise ValueError(f"the answer is no JSON object ({error})") from error
        return {name: text.strip()}
    if isinstance(value, dict):
        return as_json_object(cast("object", value))
    if name is None:
        raise ValueError("the answer is no JSON object")
    return {name: text.strip()}


def _only_text(schema: Mapping[str, object]) -> str | None:
    """Return the name of the only required field, if it is a text; None: an action needs more."""
    required = schema.get("required")
    fields = as_json_object(schema.get("properties"))
    match required:
        case [str(name)] if as_json_object(fields.get(name)).get("type") == "string":
            return name
        case _:
            return None


def _explain_action(schema: JsonObject) -> str:
    if (name := _only_text(schema)) is not None:
        about = as_json_object(as_json_object(schema.get("properties")).get(name)).get("description")
        return f"Answer with the {name} only{f': {about}' if about else '.'}"
    fields = {name: one for name, one in as_json_object(schema.get("properties")).items() if name != "metadata"}
    shown = {"properties": fields, "required": schema.get("required", []), "$defs": schema.get("$defs", {})}
    return f"Answer with one JSON object that fits this schema: {json.dumps({k: v for k, v in shown.items() if v})}"


def _show(observation: JsonObject) -> str:
    """Return what a world shows: its only text, or all that is not empty as JSON."""
    shown = {name: one for name, one in observation.items() if one not in (None, "", [], {})}
    match list(shown.values()):
        case [str(text)]:
            return text
        case _:
            return json.dumps(shown)


def _show_tool(observation: JsonObject) -> str:
    if (error := observation.get("error")) is not None:
        return f"error: {as_json_object(error).get('message') or error}"
    result = observation.get("result", observation)
    inner = as_json_object(result).get("data", result)
    return inner if isinstance(inner, str) else json.dumps(inner)
