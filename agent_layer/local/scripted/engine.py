"""The scripted engine: an OpenAI-compatible server whose answers a function writes.

It implements the part of vLLM's interface that the gateway uses: token ids and log-probabilities of prompt and answer,
streams, n > 1, tool calls, completions of token ids, and the control endpoints that change weights. Tests run it in
process; ``python -m agent_layer.local.scripted --port 8000 --script FILE.py:function`` serves it to others.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler

from agent_layer.errors import BadInputError
from agent_layer.local.scripted.completing import ReceivedCall, find_continued_chat, text_choice
from agent_layer.local.scripted.script import (
    END,
    Script,
    ScriptedChoice,
    ScriptPrompt,
    ask_script,
    echo,
    load_script,
    render_prompt,
    token_logprob,
    word_token_id,
)
from agent_layer.schema import GrowingMessage, JsonObject

_NO_REASONING_PARSER = (
    "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or"
    " --reasoning-config to use thinking_token_budget."
)
"""vLLM's sentence about a missing reasoning parser, with which it also begins a stream of status 200."""
_NO_TOOL_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
"""vLLM's sentence about a missing tool parser."""


@dataclass(kw_only=True)
class ScriptedEngine:
    """The engine's state: its script, its weights, and the calls it received."""

    script: Script = echo
    model: str = "scripted"
    token_ids: bool = True
    """False: the engine returns no token ids."""
    token_seconds: float = 0.0
    """Pause before each word, so that a test can interrupt an answer."""
    context_tokens: int | None = None
    """Longest prompt and answer; longer ones are refused as vLLM does. None: not limited."""
    parses_tools: bool = True
    """False: it refuses requests with tools, as vLLM without a tool parser does."""
    parses_reasoning: bool = True
    """False: it refuses a budget of thoughts, as vLLM without a reasoning parser does."""
    prefill_seconds: float = 0.0
    """Pause before the first event of a stream."""
    weights: str = "initial"
    """Weights directory loaded last."""
    root: str | None = None
    """Where it says that its weights come from: the start's, as with vLLM, not ``weights``. None: it does not say."""
    num_loads: int = 0
    access_key: str | None = None
    """Key that each request must carry; None: the engine asks for none."""
    refuses_weights: bool = False
    """It has no endpoint that loads weights, as vLLM without VLLM_SERVER_DEV_MODE=1."""
    adapter: str | None = None
    """Name of its LoRA adapter; None: it has none."""
    num_running: int = 0
    num_waiting: int = 0
    rewrite: Callable[[ReceivedCall, JsonObject], JsonObject] = lambda _, sent: sent
    """Changes a whole answer, or an event of a stream, before it is sent; ConnectionResetError breaks it off."""
    cache_usage: float = 0.0
    """This and ``num_waiting`` are reported at /metrics and have no other effect."""
    calls: list[ReceivedCall] = field(default_factory=list[ReceivedCall])
    controls: Counter[str] = field(default_factory=Counter[str])
    """Number of calls of each control endpoint."""
    url: str = ""
    """Set while the engine serves."""

    def __post_init__(self) -> None:
        """Start unpaused and idle."""
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    def app(self) -> web.Application:
        """Return the web application that serves this engine."""
        app = web.Application(client_max_size=1 << 28, middlewares=[self._check_key])
        app.add_routes(
            [
                web.get("/health", _health),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._list_models),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._complete),
                web.post("/tokenize", self._tokenize),
                web.post("/pause", self._pause),
                web.post("/resume", self._resume),
                web.post("/collective_rpc", self._collective_rpc),
                web.post("/v1/load_lora_adapter", self._load_adapter),
                web.post("/reset_prefix_cache", self._reset_prefix_cache),
            ]
        )
        return app

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.access_key in (None, request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return await handler(request)
        return _refuse(401, "expected this engine's key")

    async def _metrics(self, _: web.Request) -> web.Response:
        found = {"num_requests_running": self.num_running, "num_requests_waiting": self.num_waiting}
        gauges = {**found, "kv_cache_usage_perc": self.cache_usage}
        lines = [f'vllm:{name}{{engine="0",model_name="{self.model}"}} {value}\n' for name, value in gauges.items()]
        return web.Response(text="".join(lines))

    async def _list_models(self, _: web.Request) -> web.Response:
        known = {"object": "model", "root": self.root, "max_model_len": self.context_tokens}
        served = [{"id": self.model, "parent": None, **known}]
        served += [{"id": name, "parent": self.model, **known} for name in [self.adapter] if name]
        return web.json_response({"object": "list", "data": served})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = cast("JsonObject", await request.json())
        tokens = [word_token_id(word) for word in _render(body)]
        return web.json_response({"count": len(tokens), "tokens": tokens})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        await self._open.wait()
        body = cast("JsonObject", await request.json())
        if body.get("model") not in (self.model, self.adapter):
            return _refuse(404, f"The model `{body.get('model')}` does not exist.")
        if body.get("tools") and body.get("tool_choice") != "none" and not self.parses_tools:
            return _refuse(400, _NO_TOOL_PARSER)
        prompt = [word_token_id(word) for word in _render(body)]
        if (refusal := self._refuse_long(len(prompt), _requested_length(body))) is not None:
            return refusal
        if body.get("thinking_token_budget") is not None and not self.parses_reasoning:
            return await _refuse_budget(request) if body.get("stream") else _refuse(400, _NO_REASONING_PARSER)
        call = ReceivedCall(body=body, headers=dict(request.headers), prompt_token_ids=prompt)
        call.token_ids.extend([] for _ in range(_num_choices(body)))
        try:
            return await self._run_call(call, self._stream(request, call) if body.get("stream") else self._answer(call))
        except ConnectionResetError:  # by ``rewrite``, or because the client is gone
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    def _refuse_long(self, num_prompt: int, num_wanted: int) -> web.Response | None:
        """Refuse what does not fit into the context, in vLLM's words."""
        most = self.context_tokens
        if most is None or num_prompt + num_wanted <= most:
            return None
        if num_wanted > most:
            return _refuse(
                400,
                f"max_tokens={num_wanted} cannot be greater than max_model_len={most}. Please request"
                " fewer output tokens.",
            )
        return _refuse(
            400,
            f"This model's maximum context length is {most} tokens. However, you requested {num_prompt + num_wanted}"
            f" tokens ({num_prompt} in the messages, {num_wanted} in the completion). Please reduce the length of the"
            " messages or completion.",
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        await self._open.wait()
        body = cast("JsonObject", await request.json())
        prompt = cast("list[int]", body["prompt"])
        call = ReceivedCall(body=body, headers=dict(request.headers), prompt_token_ids=prompt, token_ids=[[]])
        return await self._run_call(call, self._stream_continuation(request, call))

    async def _run_call(
        self, call: ReceivedCall, answer: Coroutine[None, None, web.StreamResponse]
    ) -> web.StreamResponse:
        self.calls.append(call)
        self.num_running += 1
        self._idle.clear()
        try:
            response = await answer
        except BadInputError as error:
            return _refuse(400, str(error))
        else:
            call.finished = True
            return response
        finally:
            call.ended = True
            self.num_running -= 1
            if not self.num_running:
                self._idle.set()

    async def _answer(self, call: ReceivedCall) -> web.Response:
        choices = [
            await self._sample(call, choice, scripted_choice)
            for choice, scripted_choice in enumerate(self._make_choices(call))
        ]
        answer: JsonObject = {"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1, "model": self.model}
        answer |= {"choices": choices, "usage": _usage(call)}
        answer |= self._ids(call.body, "prompt_token_ids", call.prompt_token_ids)
        return web.json_response(self.rewrite(call, answer))

    async def _sample(self, call: ReceivedCall, choice: int, scripted_choice: ScriptedChoice) -> JsonObject:
        """Write one choice to its end."""
        growing, sampled = GrowingMessage(), call.token_ids[choice]
        for word, delta in scripted_choice.words():
            await self._pause_before_word(delta)
            sampled.append(word_token_id(word))
            growing.add(delta)
        message = growing.whole()
        message["content"] = message["content"] or (None if message.get("tool_calls") else "")
        sampled_choice: JsonObject = {
            "index": choice,
            "message": message,
            "logprobs": self._logprobs(call.body, sampled),
        }
        return sampled_choice | scripted_choice.ending(call.body) | self._ids(call.body, "token_ids", sampled)

    def _make_choices(self, call: ReceivedCall) -> list[ScriptedChoice]:
        """Return the script's answer for each choice."""
        tools = cast("list[JsonObject] | None", call.body.get("tools"))
        prompts = [
            ScriptPrompt(
                messages=_messages(call.body), tools=tools, choice=one, body=call.body, weights=lambda: self.weights
            )
            for one in range(len(call.token_ids))
        ]
        return [ask_script(self.script, one) for one in prompts]

    async def _pause_before_word(self, delta: JsonObject) -> None:
        if "content" in delta:
            await asyncio.sleep(self.token_seconds)

    async def _stream(self, request: web.Request, call: ReceivedCall) -> web.StreamResponse:
        scripted = self._make_choices(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(self.prefill_seconds)
        prompt = self._ids(call.body, "prompt_token_ids", call.prompt_token_ids)
        for choice in range(len(scripted)):
            delta = {"role": "assistant", "content": ""}
            await self._send(response, call, [{"index": choice, "delta": delta, "finish_reason": None}], prompt)
        try:
            for choice, scripted_choice in enumerate(scripted):
                await self._stream_choice(response, call, choice, scripted_choice)
        except BadInputError as error:  # from an iterator of words
            await _break_off(response, {"message": str(error), "type": _ERRORS[400], "code": 400})
            return response
        if cast("JsonObject", call.body.get("stream_options") or {}).get("include_usage"):
            await self._send(response, call, [], {"usage": _usage(call)})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _stream_continuation(self, request: web.Request, call: ReceivedCall) -> web.StreamResponse:
        """Continue after the prompt's token ids."""
        chat, num_spoken = find_continued_chat(self.calls, call.prompt_token_ids)
        scripted_choice = self._make_choices(chat)[0]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(self.prefill_seconds)
        kind: JsonObject = {"id": "cmpl-scripted", "object": "text_completion"}
        for word, delta in islice(scripted_choice.words(), num_spoken, None):
            await self._pause_before_word(delta)
            call.token_ids[0].append(word_token_id(word))
            event = text_choice(word, delta, call.body)
            await self._send(response, call, [event | (scripted_choice.ending(call.body) if word == END else {})], kind)
        if call.body.get("stream_options"):
            await self._send(response, call, [], kind | {"usage": _usage(call)})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _stream_choice(
        self, response: web.StreamResponse, call: ReceivedCall, choice: int, scripted_choice: ScriptedChoice
    ) -> None:
        for word, delta in scripted_choice.words():
            await self._pause_before_word(delta)
            call.token_ids[choice].append(word_token_id(word))
            event: JsonObject = {"index": choice, "delta": delta, "finish_reason": None}
            event |= self._ids(call.body, "token_ids", [word_token_id(word)])
            event["logprobs"] = self._logprobs(call.body, [word_token_id(word)])
            if word == END:
                event |= scripted_choice.ending(call.body)
            if word == END and (error := scripted_choice.message.get("error")):
                await _break_off(response, error)
            else:
                await self._send(response, call, [event], {})

    async def _send(
        self, response: web.StreamResponse, call: ReceivedCall, choices: list[JsonObject], more: JsonObject
    ) -> None:
        event: JsonObject = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1}
        event = self.rewrite(call, event | {"model": self.model, "choices": choices} | more)
        await response.write(f"data: {json.dumps(event)}\n\n".encode())

    def _ids(self, body: JsonObject, name: str, ids: list[int]) -> JsonObject:
        return {name: ids} if self.token_ids and body.get("return_token_ids") else {}

    def _logprobs(self, body: JsonObject, ids: list[int]) -> JsonObject | None:
        if not body.get("logprobs"):
            return None
        return {"content": [{"token": str(one), "logprob": token_logprob(one), "top_logprobs": []} for one in ids]}

    async def _pause(self, _: web.Request) -> web.Response:
        """Hold new calls and wait for running ones (vLLM's mode=wait)."""
        self.controls["pause"] += 1
        self._open.clear()
        await self._idle.wait()
        return web.json_response({"status": "paused"})

    async def _resume(self, _: web.Request) -> web.Response:
        self.controls["resume"] += 1
        self._open.set()
        return web.json_response({"status": "resumed"})

    async def _collective_rpc(self, request: web.Request) -> web.Response:
        if self.refuses_weights:
            return _refuse(404, "Not Found")
        body = await request.json()
        self.controls[body["method"]] += 1
        if body["method"] == "reload_weights":
            self.weights = body["kwargs"]["weights_path"]
            self.num_loads += 1
        return web.json_response({"results": [None]})

    async def _load_adapter(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.controls["load_lora_adapter"] += 1
        self.adapter, self.weights = body["lora_name"], body["lora_path"]
        self.num_loads += 1
        return web.Response()

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        self.controls["reset_prefix_cache"] += 1
        return web.Response()


def main(arguments: list[str] | None = None) -> None:
    """Serve a scripted engine until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m agent_layer.local.scripted", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--script", help="FILE.py:function; default: an echo")
    parser.add_argument("--model", default="scripted")
    options = parser.parse_args(arguments)
    try:
        script = load_script(options.script) if options.script else echo
    except BadInputError as error:
        parser.error(str(error))
    engine = ScriptedEngine(script=script, model=options.model)
    web.run_app(engine.app(), host=options.host, port=options.port, access_log=None, print=None)


async def _health(_: web.Request) -> web.Response:
    return web.Response()


_ERRORS = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": _ERRORS[status], "code": status}}, status=status)


async def _refuse_budget(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await _break_off(response, {"message": _NO_REASONING_PARSER, "type": _ERRORS[400], "code": 400})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _break_off(response: web.StreamResponse, error: object) -> None:
    await response.write(f"data: {json.dumps({'error': error})}\n\n".encode())


def _messages(body: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", body.get("messages") or [])


def _render(body: JsonObject) -> list[str]:
    return render_prompt(_messages(body), body.get("tools"), is_prefilled=body.get("continue_final_message"))


def _num_choices(body: JsonObject) -> int:
    return cast("int | None", body.get("n")) or 1


def _requested_length(body: JsonObject) -> int:
    """Return the longest answer that is asked; 1 where none is named."""
    return cast("int | None", body.get("max_completion_tokens") or body.get("max_tokens")) or 1


def _usage(call: ReceivedCall) -> dict[str, int]:
    num_prompt, num_sampled = len(call.prompt_token_ids), sum(map(len, call.token_ids))
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
    }


if __name__ == "__main__":
    main()
