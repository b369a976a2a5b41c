"""Task sets of verifiers: their environment plays a task as it does by itself, and asks us in place of a model.

Each seat runs the chat loop of their ``null`` harness in this process. Its calls reach their interception server, which
keeps the trace, the limits and the stops, and whose client asks us.
"""

# runs with foreign packages only
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

import argparse
import asyncio
import copy
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from importlib import metadata
from itertools import islice
from pathlib import Path

from guest_protocol import (
    Ask,
    AttemptEnded,
    RefusalError,
    Request,
    describe_version,
    explain_missing_names,
    readable_errors,
    serve,
)

_PACKAGE = describe_version("verifiers", "0.4.0")
with explain_missing_names(_PACKAGE):
    import httpx
    import openai
    import verifiers.v1 as vf
    from verifiers.v1 import judge as judges
    from verifiers.v1.clients.client import Client
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.errors import model_error
    from verifiers.v1.harnesses.null import NullHarness
    from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
    from verifiers.v1.interception import server as interception
    from verifiers.v1.mcp import launch
    from verifiers.v1.runtimes import ProgramResult
    from verifiers.v1.utils.loaders import default_harness_id

__all__ = ["GatewayHarness"]
_HARNESS = "agent_layer_chat"
_SKIPPED = 1000
"""Tasks by which each seed begins later in a set without end."""
_MODEL = "policy"
_POLL_SECONDS = 0.02
_asking: ContextVar[Ask] = ContextVar("asking")
_words: ContextVar[argparse.Namespace] = ContextVar("words")


class _Seat:
    """What the calls of one trace are answered by."""

    def __init__(self, trace: vf.Trace, ask: Ask) -> None:
        self.trace = trace
        self.ask = ask


_seats: dict[str, _Seat] = {}


class GatewayClient(Client):
    """Answers model calls with completions of ours."""

    async def get_response(self, dialect, body, sampling, session_id=None, turn=None, headers=None):
        """Return one completion; where there is none any more, stop the rollout as at its limit of turns."""
        seat = _seats[session_id or ""]
        request = {name: value for name, value in body.items() if name not in ("model", "stream", "stream_options")}
        try:
            raw = await seat.ask("policy", request)
        except AttemptEnded as error:
            seat.trace.stop("max_turns")
            raise model_error(str(error), status_code=400) from error
        response = dialect.parse_response(dialect.validate_response(raw))
        response.raw = raw
        return response


class GatewayHarness(NullHarness):
    """The chat loop of their ``null`` harness, in this process."""

    async def setup(self, runtime) -> None:
        """Prepare nothing."""

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        """Run the loop to its end."""
        system_prompt, prompt = self.resolve_prompt(data)
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        words = argparse.Namespace(
            base_url=endpoint, api_key=secret, model=ctx.model, system_prompt=system_prompt or "",
            prompt=prompt if isinstance(prompt, str) else "", initial_messages_file="",
            mcp_config=json.dumps({"mcpServers": servers}) if servers else "",
            tool_interception_url=tool_interception_url or "", bash=False, compaction=False, summarize_at_tokens=None,
            edit=False, search=False, serper_key="",
        )  # fmt: skip
        if prompt is not None and not isinstance(prompt, str):
            with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
                json.dump([message_to_wire(message) for message in prompt], file)
            words.initial_messages_file = file.name
        token = _words.set(words)
        try:
            await _chat.main()
        except (Exception, SystemExit):  # as the end of the program that it is
            return ProgramResult(exit_code=1, stdout="", stderr=traceback.format_exc())
        finally:
            _words.reset(token)
        return ProgramResult(exit_code=0, stdout="", stderr="")


def _load_chat() -> types.ModuleType:
    """Return their chat program as a module whose words are those of the harness that runs it."""
    module = types.ModuleType("vf_chat")
    exec(compile(CHAT_PROGRAM_SOURCE, "vf_chat", "exec"), module.__dict__)  # their own program
    module.parse_args = _words.get
    return module


class _JudgeTransport(httpx.AsyncBaseTransport):
    """Answers calls of judges with completions of ours."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        body.pop("model", None)
        return httpx.Response(200, json=await _asking.get()("judge", body), request=request)


def _judge_client(config: object) -> openai.AsyncOpenAI:
    del config  # the judge's address and key are ours
    transport = httpx.AsyncClient(transport=_JudgeTransport())
    return openai.AsyncOpenAI(base_url="http://judge/v1", api_key="none", max_retries=0, http_client=transport)


@asynccontextmanager
async def _serve_forked(server, harness_runtime=None, harness_is_local=True, *, state_secret="", state_base=None):
    """Serve tools from a fork of this process; their own launcher starts an interpreter, which takes seconds."""
    if server.config.runtime.type != "subprocess":
        raise RefusalError(f"tools {server.server_name!r}: they need a {server.config.runtime.type} of their own")
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder, "port")
        state_url = f"{state_base.rstrip('/')}/state" if state_base else ""
        variables = {"VF_STATE_URL": state_url, "VF_STATE_SECRET": state_secret, "MCP_PORT_FILE": str(port_file)}
        process = multiprocessing.get_context("fork").Process(target=_be_server, args=(server, variables), daemon=True)
        process.start()
        try:
            while not await _is_served(port_file):
                if not process.is_alive():
                    raise RuntimeError(f"tools {server.server_name!r}: their server ended; see the output above")
                await asyncio.sleep(_POLL_SECONDS)
            yield f"http://127.0.0.1:{port_file.read_text()}/mcp"
        finally:
            process.kill()
            await asyncio.to_thread(process.join)


def _be_server(server, variables: dict[str, str]) -> None:
    sys.stdin.close()  # of the guest program
    os.environ.update(variables)
    server._serve()


async def _is_served(port_file: Path) -> bool:
    with suppress(OSError, ValueError):
        _, writer = await asyncio.open_connection("127.0.0.1", int(port_file.read_text()))
        writer.close()
        return True
    return False


def _load_environment(taskset: Request) -> vf.Env:
    """Return the environment of a task set, with our harness in its seat.

    Raises: RefusalError: it cannot be carried.
    """
    name = taskset["id"]
    with readable_errors(f"verifiers task set {name!r}"):
        try:
            task_type = vf.task_type(name)
        except (AttributeError, TypeError) as error:
            raise RefusalError(
                f"verifiers task set {name!r}: {error}; a set of the API before 0.4, with load_environment, is not"
                " carried: it needs a port to Taskset"
            ) from error
        config_type = vf.env_config_type(name, taskset.get("env", ""))
        seats = [field for field, one in config_type.model_fields.items() if isinstance(one.default, AgentConfig)]
        if len(seats) != 1:
            raise RefusalError(f"verifiers task set {name!r}: it is played by {len(seats)} agents ({', '.join(seats)})")
        if default_harness_id(name) == name:
            raise RefusalError(f"verifiers task set {name!r}: it brings an agent program of its own")
        if task_type.NEEDS_CONTAINER:
            raise RefusalError(f"verifiers task set {name!r}: its tasks need a container")
        seat = {"harness": {"id": _HARNESS}, "runtime": {"type": "subprocess"}, "retries": {"max_retries": 0}}
        options = {field: value for field, value in taskset.items() if field not in ("id", "env")}
        config = {"id": taskset.get("env", ""), "taskset": {"id": name, **options}, seats[0]: seat}
        return vf.load_environment(vf.resolve_env_config(config))


class _Sets:
    """Environments that are loaded, each with its servers and the tasks that were read."""

    def __init__(self) -> None:
        self._loaded: dict[str, vf.Env] = {}
        self._read: dict[str, tuple[list[vf.Task], Iterator[vf.Task]]] = {}
        self._stack = AsyncExitStack()

    def open(self, taskset: Request) -> vf.Env:
        key = json.dumps(taskset, sort_keys=True)
        if key not in self._loaded:
            self._loaded[key] = _load_environment(taskset)
        return self._loaded[key]

    async def serve(self, taskset: Request) -> vf.Env:
        env = self.open(taskset)
        if env._interception is None:
            await self._stack.enter_async_context(env.serving())
        return env

    def task(self, taskset: Request, index: int) -> vf.Task:
        key = json.dumps(taskset, sort_keys=True)
        tasks, rest = self._read.setdefault(key, ([], iter(self.open(taskset).taskset)))
        with readable_errors(f"verifiers task set {taskset['id']!r}"):
            tasks += islice(rest, max(0, index + 1 - len(tasks)))
        if index >= len(tasks):
            raise RefusalError(
                f"verifiers task set {taskset['id']!r}: it has {len(tasks)} tasks, and no number {index}"
            )
        return tasks[index]


_sets = _Sets()


async def list_tasks(request: Request, _ask: Ask) -> Request:
    """Return tasks in order of a seed, and what is known of the set."""
    taskset = _sets.open(request["taskset"]).taskset
    view, seed = taskset, request["seed"]
    with readable_errors(f"verifiers task set {request['taskset']['id']!r}"):
        if seed:
            view = taskset.shuffle(seed) if taskset.bounded else taskset.skip(seed * _SKIPPED)
        tasks = [_describe(task) for task in islice(view, request["start"], request["start"] + request["count"])]
    return {"tasks": tasks, "version": _version(taskset)}


def _describe(task: vf.Task) -> Request:
    data = task.data
    if data.image or data.agent_user:
        raise RefusalError(f"verifiers task {data.idx}: it needs a container ({data.image or data.agent_user})")
    prompt = data.prompt if data.prompt is not None else []
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [
        message_to_wire(message) for message in prompt
    ]  # fmt: skip
    if data.system_prompt:
        messages.insert(0, {"role": "system", "content": data.system_prompt})
    grading = data.model_dump(mode="json", exclude_none=True)
    return {"index": data.idx, "key": task.key, "messages": messages, "grading": grading}


def _version(taskset: vf.Taskset) -> str:
    """Return the version of the package that has the set, where it has one, beside that of verifiers."""
    top = type(taskset).__module__.partition(".")[0]
    own = [f"{name}-{metadata.version(name)}" for name in metadata.packages_distributions().get(top, [])]
    return " ".join(dict.fromkeys([f"verifiers-{metadata.version('verifiers')}", *own]))


async def run(request: Request, ask: Ask) -> Request:
    """Play one task to its end; return its rewards if it is to be scored."""
    env = await _sets.serve(request["taskset"])
    task = _sets.task(request["taskset"], request["index"])
    if task.key != request["key"]:
        raise RefusalError(f"verifiers task {request['index']}: it is not what it was when it was listed")
    if not request["is_scored"]:
        task = copy.copy(task)
        task.scoring_deferred = True
    _asking.set(ask)
    traces: list[vf.Trace] = []

    def note(trace: vf.Trace) -> None:
        traces.append(trace)
        _seats[trace.id] = _Seat(trace, ask)

    try:
        # a client of this kind is served whole, without a stream
        context = vf.ModelContext(model=_MODEL, client=vf.TrainClientConfig())
        episode = await env.run_episode(task, context, on_trace=note)
    finally:
        for trace in traces:
            _seats.pop(trace.id, None)
    errors = [f"{one.type}: {one.message}" for one in (*episode.errors, *(e for t in episode.traces for e in t.errors))]
    if errors:
        raise RuntimeError("; ".join(errors))
    if len(episode.traces) != 1:
        played = f"its environment plays a task {len(episode.traces)} times, and an attempt holds one"
        raise RefusalError(f"verifiers task set {request['taskset']['id']!r}: {played}")
    (trace,) = episode.traces
    parts = {name: {"score": one.score, "weight": one.weight} for name, one in trace.rewards.items() if one is not None}
    return {
        "reward": trace.reward if parts else None,
        "parts": parts,
        "metrics": {name: value for name, value in trace.metrics.items() if value is not None},
        "stop": trace.stop_condition,
    }


if __name__ == "__main__":
    sys.modules[_HARNESS] = sys.modules["__main__"]  # their loader imports harnesses by name
    with explain_missing_names(_PACKAGE):
        _chat = _load_chat()
        for module, replaced, ours in (
            (interception, "resolve_client", lambda _: GatewayClient()),
            (judges, "build_async_openai", _judge_client),
            (launch, "serve", _serve_forked),
        ):
            getattr(module, replaced)  # what is not there cannot be replaced: model calls would reach others
            setattr(module, replaced, ours)
    serve({"list": list_tasks, "run": run}, _PACKAGE)
