# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .calls import Call as Call, CallAnswer as CallAnswer, CallRequest as CallRequest, Layer as Layer
from .calls import adopt_call as adopt_call, announce_call as announce_call, failed_answer as failed_answer
from .calls import is_inside_call as is_inside_call
from .clock import ClockAndIds as ClockAndIds, SYSTEM as SYSTEM, active_trace as active_trace, new_trace as new_trace
from .clock import write_trace as write_trace
from .contents import ContentWriter as ContentWriter
from .decorators import agent as agent, state as state, step as step, tool as tool
from .errors import add_failure_note as add_failure_note, warn_once as warn_once
from .liveness import Life as Life, LifeName as LifeName
from .rollout_handle import Rollout as Rollout, Sink as Sink
from .scope import CallLineage as CallLineage, Scope as Scope, add_scope_refinement as add_scope_refinement
from .scope import call_outside_rollouts as call_outside_rollouts, current as current, current_scope as current_scope
from .scope import enter_attempt as enter_attempt, enter_process_scope as enter_process_scope
from .scope import is_context_propagated as is_context_propagated, live_scope as live_scope, outer_scope as outer_scope
from .scope import propagate_context as propagate_context, reward as reward
from .tool_use import ToolUse as ToolUse, is_pause as is_pause
from .tracebacks import describe_traceback as describe_traceback
