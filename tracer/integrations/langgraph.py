"""This file holds the tracing of LangGraph and LangChain: which node speaks from which state, and what tools give.

Importing it installs one handler for every graph, chain, model and tool of the process, without a change to any. The
handler runs in the thread and the context of what it watches, so the rollout is always that of the code that runs.
"""

# ruff: noqa: ARG002 - LangChain names the arguments; a callback that ignores one has to take it all the same

from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook

from tracer.calls import Asked, Call, announce, failed_answer, take_over
from tracer.context import Block, Scope, current_scope, enter_block
from tracer.integrations.messages import add_state, answer_ids, message_object, read_result
from tracer.observations import ToolUse, announce_tool

__all__ = ["GraphHandler"]

_UNNAMED = "LangGraph"
"""What LangGraph calls a graph that was compiled without a name."""


class _ModelRun(NamedTuple):
    call: Call
    messages: list[BaseMessage]


class GraphHandler(BaseCallbackHandler):
    """Turns callbacks into scopes, parts of calls, and observations; an error of the log reaches the agent."""

    run_inline = True
    raise_error = True

    def __init__(self) -> None:
        self._chains: dict[UUID, tuple[object, Scope]] = {}
        self._nodes: dict[UUID, Scope] = {}
        self._models: dict[UUID, _ModelRun] = {}
        self._tools: dict[UUID, ToolUse] = {}

    def on_chain_start(
        self,
        serialized: object,
        inputs: object,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> None:
        """Enter a node; remember of anything else, which may be a graph, its name and where it began."""
        scope = current_scope()
        if scope is None:
            return
        name, told = kwargs.get("name"), metadata or {}
        if name is None or name != told.get("langgraph_node") or told.get("langgraph_checkpoint_ns") == scope.place:
            self._chains[run_id] = name, scope
            return
        graph, outer = self._chains.get(parent_run_id, (None, scope)) if parent_run_id else (None, scope)
        entered = self._nodes[run_id] = _enter_node(outer, graph, inputs, told)
        enter_block(entered)

    def on_chain_end(self, outputs: object, *, run_id: UUID, **kwargs: object) -> None:
        """Leave it, in every context that it was entered in."""
        if self._chains.pop(run_id, None) is None and (node := self._nodes.pop(run_id, None)) and node.block:
            node.block.is_open = False

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Leave it."""
        self.on_chain_end(None, run_id=run_id)

    def on_chat_model_start(
        self,
        serialized: object,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: object,
    ) -> None:
        """Mint the call's id, for the client below to take over."""
        scope = self._scope_of(parent_run_id)
        if scope is None:
            return
        call = announce(take_over(scope, "handler"))
        answers = scope.rollout.answers
        call.parent_call = next(
            (answers[message.id] for message in reversed(messages[0]) if message.id in answers), call.parent_call
        )
        self._models[run_id] = _ModelRun(call=call, messages=messages[0])
        call.begin()

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: object) -> None:
        """Record the answer, unless the client below has; remember whose answer it is."""
        run = self._models.pop(run_id, None)
        if run is None:
            return
        answers = run.call.scope.rollout.answers
        for key in answer_ids(response):
            answers[key] = run.call.call_id
        if run.call.source == "handler":
            run.call.finish("handler", read_result(response), _asked(run))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Record the failure, unless the client below has."""
        if (run := self._models.pop(run_id, None)) is not None:
            run.call.finish("handler", failed_answer(error), _asked(run))

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
        """Announce the use of a tool, for its own function to take over when it is under ``@tracer.tool``."""
        scope = self._scope_of(parent_run_id)
        if scope is None:
            return
        self._tools[run_id] = announce_tool(
            ToolUse(
                scope=scope,
                name=str((serialized or {}).get("name", "tool")),
                arguments=input_str if inputs is None else dict(inputs),
                call_id=scope.rollout.answers.get(tool_call_id or ""),
            )
        )

    def on_tool_end(self, output: object, *, run_id: UUID, **kwargs: object) -> None:
        """Record what the tool gave."""
        if (use := self._tools.pop(run_id, None)) is None:
            return
        if isinstance(output, ToolMessage):
            use.record(output.content, "error" if output.status == "error" else "ok")
        else:
            use.record(output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Record that the tool failed."""
        if (use := self._tools.pop(run_id, None)) is not None:
            use.record_error(error)

    def _scope_of(self, parent: UUID | None) -> Scope | None:
        """Give the scope here; where another node's is still set, that of the node that is meant."""
        scope, node = current_scope(), self._nodes.get(parent) if parent else None
        if scope is None or node is None or node.rollout is not scope.rollout or scope.block is node.block:
            return scope
        return node


def _enter_node(outer: Scope, graph: object, inputs: object, told: Mapping[str, object]) -> Scope:
    """Give the scope of a graph's node; the agent is the graph, if it has a name."""
    thread = told.get("thread_id")
    return msgspec.structs.replace(
        outer,
        agent=graph if isinstance(graph, str) and graph != _UNNAMED else outer.agent,
        node=str(told["langgraph_node"]),
        conversation=outer.conversation if thread is None else str(thread),
        place=told.get("langgraph_checkpoint_ns"),
        read_state=partial(add_state, inputs),
        block=Block(),
        outer=outer,
    )


def _asked(run: _ModelRun) -> Asked:
    return Asked(messages=[message_object(message) for message in run.messages])


_HANDLER: ContextVar[BaseCallbackHandler | None] = ContextVar(
    "tracer_langgraph",
    default=GraphHandler(),  # noqa: B039 - one for the process is meant
)
register_configure_hook(_HANDLER, inheritable=True)
