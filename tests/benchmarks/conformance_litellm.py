"""Custom logger for LiteLLM's proxy that writes each logged call as a line of the conformance kit's records.

It runs inside the proxy, as LiteLLM documents custom callbacks; ``KIT_RECORDS`` names the file.
"""

import json
import os
from pathlib import Path

from litellm.integrations.custom_logger import CustomLogger

__all__ = ["writer"]


class RecordWriter(CustomLogger):
    """Writes what LiteLLM's standard logging payload has."""

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):  # noqa: ARG002  # LiteLLM passes them by name
        """Write a call that ended well."""
        self._write(kwargs, "ok")

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):  # noqa: ARG002  # LiteLLM passes them by name
        """Write a call that failed."""
        self._write(kwargs, "error")

    def _write(self, kwargs, status):
        payload = kwargs.get("standard_logging_object") or {}
        answer = payload.get("response")
        with Path(os.environ["KIT_RECORDS"]).open("a") as out:
            for message, reason in _choices(answer if isinstance(answer, dict) else {}):
                shown = {"messages": _as_messages(payload.get("messages")), "message": message}
                out.write(json.dumps({**shown, "finish_reason": reason, "status": status}, default=str) + "\n")


def _as_messages(messages):
    return messages if isinstance(messages, list) else [{"role": "user", "content": json.dumps(messages, default=str)}]


def _choices(answer):
    """Yield (message, finish reason) of an answer in any of its shapes."""
    if "output" in answer:  # responses
        items = answer["output"] or []
        texts = [part.get("text") or "" for one in items for part in one.get("content") or ()]
        calls = [one for one in items if one.get("type") == "function_call"]
        yield _message("".join(texts), [(one["name"], one["arguments"]) for one in calls]), None
    elif isinstance(answer.get("content"), list):  # messages
        texts = [one.get("text") or "" for one in answer["content"]]
        calls = [(one["name"], json.dumps(one["input"])) for one in answer["content"] if one.get("type") == "tool_use"]
        yield _message("".join(texts), calls), None
    else:
        choices = answer.get("choices") or [{}]
        yield from ((one.get("message"), one.get("finish_reason")) for one in choices)


def _message(text, calls):
    made = [{"type": "function", "function": {"name": name, "arguments": text}} for name, text in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


writer = RecordWriter()
