"""This file holds the anthropic client's tracing: messages, beta ones included. Importing it installs it."""

from anthropic import Anthropic, AsyncAnthropic

from tracer.integrations.anthropic_messages import ANTHROPIC_MESSAGES
from tracer.integrations.clients import Api, trace_client

__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"X-Api-Key": key, "Authorization": f"Bearer {key}"}


trace_client(Anthropic, AsyncAnthropic, Api({"/v1/messages": ANTHROPIC_MESSAGES}, root="..", key_headers=_key_headers))
