"""What capture is made of: rollouts, scopes, calls, contents, decorators."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from tracer.core.calls import (
        Call as Call,
    )
    from tracer.core.calls import (
        CallAnswer as CallAnswer,
    )
    from tracer.core.calls import (
        CallRequest as CallRequest,
    )
    from tracer.core.calls import (
        adopt_call as adopt_call,
    )
    from tracer.core.calls import (
        announce_call as announce_call,
    )
    from tracer.core.calls import (
        failed_answer as failed_answer,
    )
    from tracer.core.calls import (
        is_inside_call as is_inside_call,
    )
    from tracer.core.clock import (
        SYSTEM as SYSTEM,
    )
    from tracer.core.clock import (
        ClockAndIds as ClockAndIds,
    )
    from tracer.core.clock import (
        active_trace as active_trace,
    )
    from tracer.core.clock import (
        new_trace as new_trace,
    )
    from tracer.core.clock import (
        write_trace as write_trace,
    )
    from tracer.core.contents import (
        ContentWriter as ContentWriter,
    )
    from tracer.core.contents import (
        json_text as json_text,
    )
    from tracer.core.contents import (
        json_value as json_value,
    )
    from tracer.core.contents import (
        safe_repr as safe_repr,
    )
    from tracer.core.decorators import agent as agent
    from tracer.core.decorators import state as state
    from tracer.core.decorators import step as step
    from tracer.core.decorators import tool as tool
    from tracer.core.errors import add_failure_note as add_failure_note
    from tracer.core.errors import warn_once as warn_once
    from tracer.core.liveness import Life as Life
    from tracer.core.liveness import LifeName as LifeName
    from tracer.core.rollout_handle import Rollout as Rollout
    from tracer.core.rollout_handle import Sink as Sink
    from tracer.core.scope import (
        CallLineage as CallLineage,
    )
    from tracer.core.scope import (
        Scope as Scope,
    )
    from tracer.core.scope import (
        add_scope_refinement as add_scope_refinement,
    )
    from tracer.core.scope import (
        call_outside_rollouts as call_outside_rollouts,
    )
    from tracer.core.scope import (
        current as current,
    )
    from tracer.core.scope import (
        current_scope as current_scope,
    )
    from tracer.core.scope import (
        enter_attempt as enter_attempt,
    )
    from tracer.core.scope import (
        enter_process_scope as enter_process_scope,
    )
    from tracer.core.scope import (
        enter_scope as enter_scope,
    )
    from tracer.core.scope import (
        is_context_propagated as is_context_propagated,
    )
    from tracer.core.scope import (
        live_scope as live_scope,
    )
    from tracer.core.scope import (
        outer_scope as outer_scope,
    )
    from tracer.core.scope import (
        propagate_context as propagate_context,
    )
    from tracer.core.scope import (
        reward as reward,
    )
    from tracer.core.tool_use import ToolUse as ToolUse
    from tracer.core.tool_use import is_pause as is_pause
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tracer.core.calls": (
                "Call",
                "CallAnswer",
                "CallRequest",
                "adopt_call",
                "announce_call",
                "failed_answer",
                "is_inside_call",
            ),
            "tracer.core.clock": (
                "ClockAndIds",
                "SYSTEM",
                "active_trace",
                "new_trace",
                "write_trace",
            ),
            "tracer.core.contents": (
                "ContentWriter",
                "json_text",
                "json_value",
                "safe_repr",
            ),
            "tracer.core.decorators": (
                "agent",
                "state",
                "step",
                "tool",
            ),
            "tracer.core.errors": ("add_failure_note", "warn_once"),
            "tracer.core.liveness": ("Life", "LifeName"),
            "tracer.core.rollout_handle": (
                "Rollout",
                "Sink",
            ),
            "tracer.core.tool_use": ("ToolUse", "is_pause"),
            "tracer.core.scope": (
                "CallLineage",
                "Scope",
                "add_scope_refinement",
                "call_outside_rollouts",
                "current",
                "current_scope",
                "enter_attempt",
                "enter_process_scope",
                "enter_scope",
                "is_context_propagated",
                "live_scope",
                "outer_scope",
                "propagate_context",
                "reward",
            ),
        },
    )
