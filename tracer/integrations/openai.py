"""This file holds the openai client's tracing: chat completions and responses. Importing it installs it."""

from openai import AsyncOpenAI, OpenAI

from tracer.integrations.chat import CHAT
from tracer.integrations.clients import Api, trace_client
from tracer.integrations.responses import RESPONSES

__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


trace_client(
    OpenAI, AsyncOpenAI, Api({"/chat/completions": CHAT, "/responses": RESPONSES}, root="", key_headers=_key_headers)
)
