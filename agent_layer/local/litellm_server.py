"""Server that calls providers through LiteLLM, in a process of its own because LiteLLM is large.

``python -m agent_layer.local.litellm_server --port 8800`` serves ``/v1/chat/completions`` to clients with its key. Only
its environment contains the providers' keys (``OPENAI_API_KEY`` and so on, as LiteLLM names them).
"""

import argparse
import hmac
from collections.abc import AsyncIterator
from typing import Protocol, cast

import litellm
import msgspec
from aiohttp import web
from openai import OpenAIError

from agent_layer.schema import JsonObject
from agent_layer.settings import load_settings

_FIELDS = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "stream", "n"}
    | {"stream_options", "temperature", "top_p", "stop", "max_tokens", "max_completion_tokens", "presence_penalty"}
    | {"frequency_penalty", "logit_bias", "user", "response_format", "seed", "logprobs", "top_logprobs", "modalities"}
    | {"prediction", "audio", "reasoning_effort", "verbosity", "thinking", "web_search_options", "service_tier"}
)
"""Request fields to forward. LiteLLM would also accept addresses in a request, and send our keys there."""


class _Answer(Protocol):
    def model_dump_json(self) -> str: ...


class LiteLLMServer:
    """Answers chat completions.

    Args:
        api_key: of this server.
        request_seconds: longest call.
    """

    def __init__(self, api_key: str, request_seconds: float) -> None:
        self._api_key = api_key.encode()
        self._request_seconds = request_seconds

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application(client_max_size=1 << 28)
        app.add_routes([web.get("/health", _health), web.post("/v1/chat/completions", self._chat)])
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(key.encode(), self._api_key):
            return _error_response(401, "this server answers the gateway only")
        request_body = msgspec.json.decode(await request.read(), type=JsonObject)
        fields = {name: value for name, value in request_body.items() if name in _FIELDS}
        try:
            answer = await litellm.acompletion(**fields, timeout=self._request_seconds, num_retries=0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportArgumentType]  # untyped
            if fields.get("stream"):
                return await _stream(request, cast("AsyncIterator[_Answer]", answer))
        except OpenAIError as error:  # base class of LiteLLM's exceptions
            return _error_response(getattr(error, "status_code", None) or 502, str(error))
        body = cast("_Answer", answer).model_dump_json()
        return web.Response(text=body, content_type="application/json")


async def _stream(request: web.Request, chunks: AsyncIterator[_Answer]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    try:
        async for chunk in chunks:
            await response.write(f"data: {chunk.model_dump_json()}\n\n".encode())
    except OpenAIError as error:
        await response.write(b"data: " + _error_body(str(error)) + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _error_response(status: int, message: str) -> web.Response:
    return web.Response(status=status, body=_error_body(message), content_type="application/json")


def _error_body(message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": "provider", "code": "provider", "param": None}})


async def _health(_: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Serve on loopback until a signal."""
    parser = argparse.ArgumentParser(prog="python -m agent_layer.local.litellm_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = int(parser.parse_args().port)
    settings = load_settings()
    server = LiteLLMServer(settings.provider_key or "", settings.request_seconds)
    web.run_app(server.app(), host="127.0.0.1", port=port, access_log=None, print=None)


if __name__ == "__main__":
    main()
