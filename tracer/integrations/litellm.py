"""Tracing of LiteLLM: completions and responses, for every provider.

LiteLLM's callbacks miss abandoned streams, so its functions are wrapped. A call of a rollout with a gateway is made in
OpenAI's dialect to the rollout's address; when the openai client makes it, that client's hook adopts the call.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import signature
from types import ModuleType
from typing import Protocol, cast

import litellm
from litellm import main
from litellm.responses import main as responses_main

from agent_layer.schema import json_text
from tracer.core import Call, adopt_call, announce_call, current_scope, is_inside_call
from tracer.integrations.client import Dialect, SentCall, StreamRecorder, call_headers, trace_calls
from tracer.integrations.openai import CHAT
from tracer.integrations.patching import replace_everywhere
from tracer.integrations.translated import RESPONSES

__all__: list[str] = []

_OURS = frozenset({"model", "messages", "input", "instructions", "tools"})


class _Completion(Protocol):
    """An answer that was not streamed."""

    def model_dump(self, *, exclude_none: bool, warnings: bool) -> object: ...


class _EntryPoint:
    """One kind of function by which calls enter LiteLLM."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def trace(self, function: Callable[..., object]) -> Callable[..., object]:
        return trace_calls(function, "broker", partial(self._send, tuple(signature(function).parameters)))

    def _send(
        self, parameters: Sequence[str], function: Callable[..., object], *args: object, **kwargs: object
    ) -> SentCall | None:
        call = self._begin()
        named = {**dict(zip(parameters, args, strict=False)), **kwargs}
        return call and SentCall(
            call, lambda: function(*args, **_address(kwargs, call)), partial(self._answer, call, named)
        )

    def _begin(self) -> Call | None:
        """Announce a call, for the client below to adopt; None outside rollouts, and when LiteLLM calls itself."""
        scope = current_scope()
        if scope is None or is_inside_call(scope, "broker"):
            return None
        call = announce_call(adopt_call(scope, "broker"))
        call.begin()
        return call

    def _answer(self, call: Call, named: Mapping[str, object], result: object) -> object:
        """Record the answer, unless the client below has recorded it, and return it."""
        if call.source != "broker":
            return result
        call.source = "hook"  # no layer below adopted it, and none may from now on
        request = self._dialect.read_request({name: named[name] for name in _OURS & named.keys()})
        if hasattr(result, "__next__") or hasattr(result, "__anext__"):
            _watch_class(type(result), "__next__", _see_items)
            _watch_class(type(result), "__anext__", _see_items_async)
            setattr(result, _RECORD, StreamRecorder(call, self._dialect, request))
        else:
            answer = self._dialect.read_answer(
                json_text(cast("_Completion", result).model_dump(exclude_none=True, warnings=False))
            )
            call.finish("hook", answer, request)
        return result


def _address(named: Mapping[str, object], call: Call) -> dict[str, object]:
    """Return the named arguments with address, key and ids of the call's rollout, for every provider."""
    rollout = call.scope.rollout
    if not call.is_routed:
        return dict(named)
    theirs = cast("Mapping[str, object] | None", named.get("extra_headers")) or {}
    return {
        **named,
        "custom_llm_provider": "openai",
        "api_base": rollout.base_url,
        "base_url": None,
        "api_key": rollout.api_key,
        "extra_headers": {**theirs, **call_headers(call)},
    }


_RECORD = "_tracer_record"
_WATCHED: set[tuple[type, str]] = set()


class _Item(Protocol):
    """One item of a stream: a pydantic model."""

    def model_dump(self, *, exclude_none: bool, warnings: bool) -> object: ...


def _watch_class(kind: type, name: str, see: Callable[..., object]) -> None:
    """Patch the class that defines the method: Python looks special methods up in classes, not in objects."""
    owner = next((one for one in kind.__mro__ if name in one.__dict__), None)
    if owner is not None and (owner, name) not in _WATCHED:
        _WATCHED.add((owner, name))
        setattr(owner, name, see(getattr(owner, name)))


def _see_items(advance: Callable[[object], object]) -> Callable[[object], object]:
    @wraps(advance)
    def watched(stream: object) -> object:
        record = cast("StreamRecorder | None", getattr(stream, _RECORD, None))
        if record is None:
            return advance(stream)
        try:
            item = advance(stream)
        except BaseException as end:
            record.end(is_whole=isinstance(end, StopIteration))
            raise
        record.add_event(_text(item))
        return item

    return watched


def _see_items_async(advance: Callable[[object], Awaitable[object]]) -> Callable[[object], Awaitable[object]]:
    @wraps(advance)
    async def watched(stream: object) -> object:
        record = cast("StreamRecorder | None", getattr(stream, _RECORD, None))
        if record is None:
            return await advance(stream)
        try:
            item = await advance(stream)
        except BaseException as end:
            record.end(is_whole=isinstance(end, StopAsyncIteration))
            raise
        record.add_event(_text(item))
        return item

    return watched


def _text(item: object) -> str:
    return json_text(cast("_Item", item).model_dump(exclude_none=True, warnings=False)).decode()


def _install(seam: _EntryPoint, name: str, *modules: ModuleType) -> None:
    """Trace a function and its ``a…`` form, in each module that defines them."""
    for module in modules:
        function, async_function = getattr(module, name), getattr(module, f"a{name}")
        replace_everywhere(function, seam.trace(function))
        replace_everywhere(async_function, seam.trace(async_function))


_install(_EntryPoint(CHAT), "completion", main, litellm)
_install(_EntryPoint(RESPONSES), "responses", responses_main)
