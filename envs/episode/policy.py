"""Model calls of an episode, through the gateway."""

from collections.abc import Sequence

import msgspec
from aiohttp import ClientSession

from agent_layer.schema import CALL_HEADER, JsonObject, as_json_object, as_json_objects
from envs.failures import CONTEXT_FULL, ContextFullError, ModelCallError
from tracer.core import Rollout

_MAX_ERROR_LENGTH = 1000


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON text, if the model made no mistake."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model."""

    call_id: str
    message: JsonObject
    """Message as received."""
    num_prompt: int | None
    """Tokens of the prompt; None: the engine did not count."""
    num_sampled: int | None
    is_cut: bool
    """It reached its longest length."""

    @property
    def text(self) -> str:
        """What it says; empty beside tool calls that say nothing."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    @property
    def calls(self) -> list[RequestedCall]:
        """The tool calls, in order."""
        return [
            RequestedCall(
                id=str(call.get("id") or ""),
                name=str((function := as_json_object(call.get("function"))).get("name") or ""),
                arguments=_as_text(function.get("arguments") or "{}"),
            )
            for call in as_json_objects(self.message.get("tool_calls"))
        ]


class Policy:
    """The model of one attempt."""

    def __init__(self, client: ClientSession, rollout: Rollout, tools: Sequence[JsonObject]) -> None:
        self._client = client
        self._rollout = rollout
        self._tools = list(tools)

    async def ask(self, messages: Sequence[JsonObject], call_id: str, options: JsonObject) -> Answer:
        """Return the model's answer.

        Args:
            messages: the prompt.
            call_id: under which the call is recorded.
            options: sampling parameters and other fields of the request.

        Raises:
            ContextFullError: the prompt does not fit into the model's context.
            ModelCallError: the gateway refused, for example because the task's limits are reached.
        """
        body: JsonObject = {"messages": list(messages), **options}
        if self._tools:
            body["tools"] = self._tools
        completion = msgspec.json.decode(await self.complete(body, call_id), type=_Completion)
        choice, usage = completion.choices[0], completion.usage or _Usage()
        return Answer(
            call_id=call_id,
            message=choice.message,
            num_prompt=usage.prompt_tokens,
            num_sampled=usage.completion_tokens,
            is_cut=choice.finish_reason == "length",
        )

    async def complete(self, body: JsonObject, call_id: str) -> bytes:
        """Return the completion of a request, as JSON.

        Args:
            body: a chat-completions request; its model is the attempt's.
            call_id: under which the call is recorded.

        Raises: as ``ask``.
        """
        headers = {"Authorization": f"Bearer {self._rollout.api_key}", CALL_HEADER: call_id}
        request = {"model": self._rollout.model or "policy", **body}
        url = f"{self._rollout.base_url}/chat/completions"
        async with self._client.post(url, json=request, headers=headers) as response:
            received = await response.read()
        if response.status != 200:
            reason = received[:_MAX_ERROR_LENGTH].decode("utf-8", "replace")
            kind = ContextFullError if CONTEXT_FULL in reason else ModelCallError
            raise kind(f"model call {call_id}: the gateway answered {response.status} {reason}", response.status)
        return received


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Choice(msgspec.Struct):
    message: JsonObject
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
