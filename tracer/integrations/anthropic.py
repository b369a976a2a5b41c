"""Tracing of the anthropic client: messages, beta ones included. Importing this module installs it."""

from anthropic import Anthropic, AsyncAnthropic

from tracer.integrations.client import Api, trace_client
from tracer.integrations.translated import MESSAGES

__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"X-Api-Key": key, "Authorization": f"Bearer {key}"}


trace_client(Api(Anthropic, AsyncAnthropic, {"/v1/messages": MESSAGES}, root="..", key_headers=_key_headers))
