"""Tracing of LiteLLM: completions and responses, for every provider.

LiteLLM's callbacks miss abandoned streams, so its functions are wrapped. A call of a rollout with a gateway is made in
OpenAI's dialect to the rollout's address; when the openai client makes it, that client's hook adopts the call.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import signature
from types import ModuleType
from typing import Protocol, cast

import litellm
from litellm import main
from litellm.responses import main as responses_main

from tracer.core import Call, adopt_call, announce_call, current_scope, is_inside_call
from tracer.integrations.client import Dialect, StreamRecorder, call_headers, watch_items
from tracer.integrations.openai import CHAT
from tracer.integrations.openai_responses import RESPONSES
from tracer.integrations.patching import replace_everywhere

__all__: list[str] = []

_OURS = frozenset({"model", "messages", "input", "instructions", "tools"})


class _Completion(Protocol):
    """An answer that was not streamed."""

    def model_dump_json(self, *, exclude_none: bool, warnings: bool) -> str: ...


class _EntryPoint:
    """One kind of function by which calls enter LiteLLM."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def trace(self, function: Callable[..., object]) -> Callable[..., object]:
        parameters = tuple(signature(function).parameters)

        @wraps(function)
        def traced(*args: object, **kwargs: object) -> object:
            call = self._begin()
            if call is None:
                return function(*args, **kwargs)
            try:
                result = function(*args, **_address(kwargs, call))
            except BaseException as error:
                call.fail("broker", error)
                raise
            self._answer(call, {**dict(zip(parameters, args, strict=False)), **kwargs}, result)
            return result

        return traced

    def trace_async(self, function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        parameters = tuple(signature(function).parameters)

        @wraps(function)
        async def traced(*args: object, **kwargs: object) -> object:
            call = self._begin()
            if call is None:
                return await function(*args, **kwargs)
            try:
                result = await function(*args, **_address(kwargs, call))
            except BaseException as error:
                call.fail("broker", error)
                raise
            self._answer(call, {**dict(zip(parameters, args, strict=False)), **kwargs}, result)
            return result

        return traced

    def _begin(self) -> Call | None:
        """Announce a call, for the client below to adopt; None outside rollouts, and when LiteLLM calls itself."""
        scope = current_scope()
        if scope is None or is_inside_call(scope, "broker"):
            return None
        call = announce_call(adopt_call(scope, "broker"))
        call.begin()
        return call

    def _answer(self, call: Call, named: Mapping[str, object], result: object) -> None:
        """Record the answer, unless the client below has recorded it."""
        if call.source != "broker":
            return
        call.source = "hook"  # no layer below adopted it, and none may from now on
        request = self._dialect.read_request({name: named[name] for name in _OURS & named.keys()})
        if hasattr(result, "__next__") or hasattr(result, "__anext__"):
            watch_items(result, StreamRecorder(call, self._dialect, request))
        else:
            answer = self._dialect.read_answer(
                cast("_Completion", result).model_dump_json(exclude_none=True, warnings=False).encode()
            )
            call.finish("hook", answer, request)


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


def _install(seam: _EntryPoint, name: str, *modules: ModuleType) -> None:
    """Trace a function and its ``a…`` form, in each module that defines them."""
    for module in modules:
        function, async_function = getattr(module, name), getattr(module, f"a{name}")
        replace_everywhere(function, seam.trace(function))
        replace_everywhere(async_function, seam.trace_async(async_function))


_install(_EntryPoint(CHAT), "completion", main, litellm)
_install(_EntryPoint(RESPONSES), "responses", responses_main)
