"""Tracing of LangGraph and LangChain: the node and state of each model call, and the outputs of tools.

Importing this module installs one handler for every graph, chain, model and tool of the process. The handler runs in
the thread and context of the code that it watches, so the rollout is always that of this code.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from tracer.core import (
    Call,
    CallRequest,
    Scope,
    ToolUse,
    add_failure_note,
    add_scope_refinement,
    adopt_call,
    announce_call,
    failed_answer,
    live_scope,
    outer_scope,
)
from tracer.integrations.langgraph_runs import (
    Run,
    answer_questions,
    begin_chain,
    begin_tool,
    end_chain,
    is_handover,
    open_questions,
    scope_at,
)
from tracer.integrations.messages import add_messages, add_state, answer_ids, read_result

# ruff: noqa: ARG002 - LangChain passes all arguments by name


class _ModelRun(NamedTuple):
    call: Call
    request: CallRequest


class GraphHandler(BaseCallbackHandler):
    """Turns callbacks into runs, step parts and observations. An error of the log propagates to the agent."""

    run_inline = True
    raise_error = True

    def __init__(self) -> None:
        self._runs: dict[UUID | None, Run] = {}
        """Chains and tools that have not ended."""
        self._models: dict[UUID, _ModelRun] = {}

    def find_scope(self, base: Scope) -> Scope:
        """Return the scope of the innermost node or tool in this context."""
        config = var_child_runnable_config.get()
        callbacks = config and config.get("callbacks")
        run = self._runs.get(callbacks.parent_run_id) if isinstance(callbacks, BaseCallbackManager) else None
        return scope_at(run, base)

    def on_chain_start(
        self,
        serialized: object,
        inputs: object,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, object] | None = None,
        name: object = None,
        **kwargs: object,
    ) -> None:
        """Track a graph, node or other chain while it runs."""
        parent, base = self._runs.get(parent_run_id), outer_scope()
        base = base or (parent and live_scope(parent.base))
        if base is None:
            return
        run = Run(base, parent, name, metadata or {}, inputs, add_state=add_state)
        self._runs[run_id] = begin_chain(run)
        if type(inputs).__name__ == "Command":
            answer_questions(run)

    def on_chain_end(self, outputs: object, *, run_id: UUID, **kwargs: object) -> None:
        """Stop tracking the chain; its calls become parents of what follows."""
        if (run := self._runs.pop(run_id, None)) is not None:
            end_chain(run, is_success=True)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Stop tracking the chain. A node that failed may be retried from its beginning."""
        if (run := self._runs.pop(run_id, None)) is not None:
            end_chain(run, is_success=is_handover(error))
            open_questions(run, error)

    def on_chat_model_start(
        self,
        serialized: object,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: object,
    ) -> None:
        """Announce the call, for the client below to adopt."""
        scope = self._run_scope(parent_run_id)
        if scope is None:
            return
        call, rollout = announce_call(adopt_call(scope, "handler")), scope.rollout
        call.parent_call = next(
            (rollout.answers[one.id] for one in reversed(messages[0]) if one.id in rollout.answers), call.parent_call
        )
        run = self._models[run_id] = _ModelRun(call, CallRequest(add_messages=partial(add_messages, messages[0])))
        rollout.unfinished[str(run_id)] = partial(self.on_llm_error, GeneratorExit(), run_id=run_id)
        call.begin(run.request)

    def on_llm_start(
        self,
        serialized: object,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: object,
    ) -> None:
        """Record a text completion as a chat with one user message."""
        messages: list[list[BaseMessage]] = [[HumanMessage(prompt) for prompt in prompts]]
        self.on_chat_model_start(serialized, messages, run_id=run_id, parent_run_id=parent_run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: object) -> None:
        """Record the answer, unless the client below has recorded it; remember the call of its ids."""
        run = self._finish(run_id)
        if run is None:
            return
        run.call.scope.rollout.answers.update(dict.fromkeys(answer_ids(response), run.call.call_id))
        if run.call.source == "handler":
            run.call.finish("handler", read_result(response), run.request)

    def on_llm_error(
        self, error: BaseException, *, run_id: UUID, response: LLMResult | None = None, **kwargs: object
    ) -> None:
        """Record the failure or abandonment, with the part of the answer received so far."""
        run = self._finish(run_id)
        if run is None:
            return
        answer = failed_answer(error)
        if response is not None and response.generations:
            answer = msgspec.structs.replace(read_result(response), status=answer.status, error=answer.error)
        with add_failure_note(error, "the model call that failed could not be recorded"):
            run.call.finish("handler", answer, run.request)

    def on_tool_start(
        self,
        serialized: Mapping[str, object] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: Mapping[str, object] | None = None,
        tool_call_id: str | None = None,
        **kwargs: object,
    ) -> None:
        """Begin the use of a tool, for its function to adopt when that is under ``@tracer.tool``."""
        scope = self._run_scope(parent_run_id)
        if scope is None:
            return
        use = ToolUse(
            scope=scope,
            name=str((serialized or {}).get("name", "tool")),
            arguments=input_str if inputs is None else dict(inputs),
            call_id=scope.rollout.answers.get(tool_call_id or ""),
        )
        self._runs[run_id] = begin_tool(self._runs.get(parent_run_id), outer_scope() or scope, use)

    def on_tool_end(self, output: object, *, run_id: UUID, **kwargs: object) -> None:
        """Record the output of the tool."""
        if (use := self._end_tool(run_id)) is None:
            return
        if isinstance(output, ToolMessage):
            use.record(output.content, "error" if output.status == "error" else "ok")
        else:
            use.record(output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Record that the tool failed."""
        if (use := self._end_tool(run_id)) is not None:
            with add_failure_note(error, "the tool that failed could not be recorded"):
                use.record_error(error)

    def _run_scope(self, parent_run_id: UUID | None) -> Scope | None:
        """Return the scope of the run with this id, also when its context variables were lost."""
        run, base = self._runs.get(parent_run_id), outer_scope()
        base = base or (run and live_scope(run.base))
        if base is None:
            return None
        return scope_at(run, base) if run else self.find_scope(base)

    def _finish(self, run_id: UUID) -> _ModelRun | None:
        run = self._models.pop(run_id, None)
        if run is not None:
            run.call.scope.rollout.unfinished.pop(str(run_id), None)
        return run

    def _end_tool(self, run_id: UUID) -> ToolUse | None:
        run = self._runs.pop(run_id, None)
        return run and run.tool


_GRAPHS = GraphHandler()
HANDLER = ContextVar[BaseCallbackHandler | None]("tracer_langgraph", default=_GRAPHS)
"""Handler of graphs that run in this context."""
register_configure_hook(HANDLER, inheritable=True)
add_scope_refinement(_GRAPHS.find_scope)
