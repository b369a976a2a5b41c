"""Forms that travel over HTTP: the gateway's own API, W3C trace context, and pieces of streamed chat messages."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema.wire.bounds import BodyBounds as BodyBounds
    from agent_layer.schema.wire.bounds import check_bounds as check_bounds
    from agent_layer.schema.wire.gateway_api import (
        AGENT_HEADER as AGENT_HEADER,
    )
    from agent_layer.schema.wire.gateway_api import (
        CALL_HEADER as CALL_HEADER,
    )
    from agent_layer.schema.wire.gateway_api import CLOSE_ROLLOUT as CLOSE_ROLLOUT
    from agent_layer.schema.wire.gateway_api import END_ROLLOUT as END_ROLLOUT
    from agent_layer.schema.wire.gateway_api import (
        KEY_PREFIX as KEY_PREFIX,
    )
    from agent_layer.schema.wire.gateway_api import MARK_ROLLOUT as MARK_ROLLOUT
    from agent_layer.schema.wire.gateway_api import MAX_LEASE_SECONDS as MAX_LEASE_SECONDS
    from agent_layer.schema.wire.gateway_api import OPEN_ROLLOUT as OPEN_ROLLOUT
    from agent_layer.schema.wire.gateway_api import PAUSE_ROLLOUT as PAUSE_ROLLOUT
    from agent_layer.schema.wire.gateway_api import RENEW_ROLLOUTS as RENEW_ROLLOUTS
    from agent_layer.schema.wire.gateway_api import REWARD_ROLLOUT as REWARD_ROLLOUT
    from agent_layer.schema.wire.gateway_api import (
        ROLE_HEADER as ROLE_HEADER,
    )
    from agent_layer.schema.wire.gateway_api import (
        ROLLOUT_HEADER as ROLLOUT_HEADER,
    )
    from agent_layer.schema.wire.gateway_api import (
        RUN_HEADER as RUN_HEADER,
    )
    from agent_layer.schema.wire.gateway_api import (
        ClosedRollout as ClosedRollout,
    )
    from agent_layer.schema.wire.gateway_api import (
        CloseRequest as CloseRequest,
    )
    from agent_layer.schema.wire.gateway_api import (
        EndedRollout as EndedRollout,
    )
    from agent_layer.schema.wire.gateway_api import Endpoint as Endpoint
    from agent_layer.schema.wire.gateway_api import (
        EndRequest as EndRequest,
    )
    from agent_layer.schema.wire.gateway_api import (
        EndStatus as EndStatus,
    )
    from agent_layer.schema.wire.gateway_api import (
        HolderRequest as HolderRequest,
    )
    from agent_layer.schema.wire.gateway_api import (
        MarkedRollout as MarkedRollout,
    )
    from agent_layer.schema.wire.gateway_api import (
        OpenedRollout as OpenedRollout,
    )
    from agent_layer.schema.wire.gateway_api import (
        OpenRequest as OpenRequest,
    )
    from agent_layer.schema.wire.gateway_api import RecordedReward as RecordedReward
    from agent_layer.schema.wire.gateway_api import (
        RenewedRollouts as RenewedRollouts,
    )
    from agent_layer.schema.wire.gateway_api import (
        RenewRequest as RenewRequest,
    )
    from agent_layer.schema.wire.gateway_api import (
        Resumption as Resumption,
    )
    from agent_layer.schema.wire.gateway_api import (
        RewardRequest as RewardRequest,
    )
    from agent_layer.schema.wire.gateway_api import (
        make_attempt_started as make_attempt_started,
    )
    from agent_layer.schema.wire.growing import GrowingCall as GrowingCall
    from agent_layer.schema.wire.growing import GrowingCalls as GrowingCalls
    from agent_layer.schema.wire.growing import GrowingMessage as GrowingMessage
    from agent_layer.schema.wire.trace import (
        TraceContext as TraceContext,
    )
    from agent_layer.schema.wire.trace import (
        derive_span_id as derive_span_id,
    )
    from agent_layer.schema.wire.trace import (
        derive_trace_id as derive_trace_id,
    )
    from agent_layer.schema.wire.trace import (
        parse_trace as parse_trace,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema.wire.bounds": (
                "BodyBounds",
                "check_bounds",
            ),
            "agent_layer.schema.wire.gateway_api": (
                "CLOSE_ROLLOUT",
                "END_ROLLOUT",
                "MARK_ROLLOUT",
                "MAX_LEASE_SECONDS",
                "OPEN_ROLLOUT",
                "PAUSE_ROLLOUT",
                "RENEW_ROLLOUTS",
                "REWARD_ROLLOUT",
                "Endpoint",
                "RecordedReward",
                "AGENT_HEADER",
                "CALL_HEADER",
                "CloseRequest",
                "ClosedRollout",
                "EndRequest",
                "EndStatus",
                "EndedRollout",
                "HolderRequest",
                "KEY_PREFIX",
                "MarkedRollout",
                "OpenRequest",
                "OpenedRollout",
                "ROLE_HEADER",
                "ROLLOUT_HEADER",
                "RUN_HEADER",
                "RenewRequest",
                "RenewedRollouts",
                "Resumption",
                "RewardRequest",
                "make_attempt_started",
            ),
            "agent_layer.schema.wire.growing": (
                "GrowingCall",
                "GrowingCalls",
                "GrowingMessage",
            ),
            "agent_layer.schema.wire.trace": (
                "TraceContext",
                "derive_span_id",
                "derive_trace_id",
                "parse_trace",
            ),
        },
    )
