"""What capture is made of: rollouts, scopes, calls, contents, decorators."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "calls": "Call CallAnswer CallRequest Layer adopt_call announce_call failed_answer is_inside_call",
        "clock": "SYSTEM ClockAndIds active_trace new_trace write_trace",
        "contents": "ContentWriter",
        "decorators": "agent state step tool",
        "errors": "add_failure_note warn_once",
        "liveness": "Life LifeName",
        "rollout_handle": "Rollout Sink",
        "scope": (
            "CallLineage Scope add_scope_refinement call_outside_rollouts current current_scope enter_attempt"
            " enter_process_scope is_context_propagated live_scope outer_scope propagate_context reward"
        ),
        "tool_use": "ToolUse is_pause",
        "tracebacks": "describe_traceback",
    },
)
