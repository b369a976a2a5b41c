"""What capture is made of: rollouts, scopes, calls, contents, decorators."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from tracer.core.calls import (
        Answer as Answer,
    )
    from tracer.core.calls import (
        Asked as Asked,
    )
    from tracer.core.calls import (
        Call as Call,
    )
    from tracer.core.calls import (
        announce as announce,
    )
    from tracer.core.calls import (
        failed_answer as failed_answer,
    )
    from tracer.core.calls import (
        is_under as is_under,
    )
    from tracer.core.calls import (
        take_over as take_over,
    )
    from tracer.core.clock import (
        SYSTEM as SYSTEM,
    )
    from tracer.core.clock import (
        Stamps as Stamps,
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
        Contents as Contents,
    )
    from tracer.core.contents import (
        ToolUse as ToolUse,
    )
    from tracer.core.contents import (
        describe as describe,
    )
    from tracer.core.contents import (
        is_pause as is_pause,
    )
    from tracer.core.contents import (
        json_text as json_text,
    )
    from tracer.core.contents import (
        json_value as json_value,
    )
    from tracer.core.decorators import agent as agent
    from tracer.core.decorators import state as state
    from tracer.core.decorators import step as step
    from tracer.core.decorators import tool as tool
    from tracer.core.errors import beside as beside
    from tracer.core.rollout_handle import Rollout as Rollout
    from tracer.core.rollout_handle import Sink as Sink
    from tracer.core.scope import (
        Scope as Scope,
    )
    from tracer.core.scope import (
        Trail as Trail,
    )
    from tracer.core.scope import (
        carry as carry,
    )
    from tracer.core.scope import (
        current as current,
    )
    from tracer.core.scope import (
        current_scope as current_scope,
    )
    from tracer.core.scope import (
        enter_process as enter_process,
    )
    from tracer.core.scope import (
        enter_scope as enter_scope,
    )
    from tracer.core.scope import (
        is_carried as is_carried,
    )
    from tracer.core.scope import (
        outer_scope as outer_scope,
    )
    from tracer.core.scope import (
        refine_scopes as refine_scopes,
    )
    from tracer.core.scope import (
        reward as reward,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tracer.core.calls": (
                "Answer",
                "Asked",
                "Call",
                "announce",
                "failed_answer",
                "is_under",
                "take_over",
            ),
            "tracer.core.clock": (
                "SYSTEM",
                "Stamps",
                "active_trace",
                "new_trace",
                "write_trace",
            ),
            "tracer.core.contents": (
                "Contents",
                "ToolUse",
                "describe",
                "is_pause",
                "json_text",
                "json_value",
            ),
            "tracer.core.decorators": (
                "agent",
                "state",
                "step",
                "tool",
            ),
            "tracer.core.errors": ("beside",),
            "tracer.core.rollout_handle": (
                "Rollout",
                "Sink",
            ),
            "tracer.core.scope": (
                "Scope",
                "Trail",
                "carry",
                "current",
                "current_scope",
                "enter_process",
                "enter_scope",
                "is_carried",
                "outer_scope",
                "refine_scopes",
                "reward",
            ),
        },
    )
