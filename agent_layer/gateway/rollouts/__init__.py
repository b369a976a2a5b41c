"""Open rollouts at the gateway: keys, budgets, retries, prefixes, finalising, resuming."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.rollouts.body_quota import HeldBytes as HeldBytes
    from agent_layer.gateway.rollouts.counters import (
        Counters as Counters,
    )
    from agent_layer.gateway.rollouts.counters import (
        CountingLog as CountingLog,
    )
    from agent_layer.gateway.rollouts.counters import (
        Durations as Durations,
    )
    from agent_layer.gateway.rollouts.counters import (
        Sample as Sample,
    )
    from agent_layer.gateway.rollouts.counters import (
        SettlingLog as SettlingLog,
    )
    from agent_layer.gateway.rollouts.divergence import HashedAnswer as HashedAnswer
    from agent_layer.gateway.rollouts.divergence import History as History
    from agent_layer.gateway.rollouts.divergence import cause_of_break as cause_of_break
    from agent_layer.gateway.rollouts.expiry import abort_all as abort_all
    from agent_layer.gateway.rollouts.expiry import reap_expired as reap_expired
    from agent_layer.gateway.rollouts.finalize import Finalizer as Finalizer
    from agent_layer.gateway.rollouts.finalize import record_reward as record_reward
    from agent_layer.gateway.rollouts.finalize import wait_until as wait_until
    from agent_layer.gateway.rollouts.log_protocol import Log as Log
    from agent_layer.gateway.rollouts.prefix import Hashed as Hashed
    from agent_layer.gateway.rollouts.registry import RolloutRegistry as RolloutRegistry
    from agent_layer.gateway.rollouts.resume import AttemptResumption as AttemptResumption
    from agent_layer.gateway.rollouts.retries import Call as Call
    from agent_layer.gateway.rollouts.retries import ResponseCache as ResponseCache
    from agent_layer.gateway.rollouts.retries import RetryKey as RetryKey
    from agent_layer.gateway.rollouts.rollout import (
        CallHistory as CallHistory,
    )
    from agent_layer.gateway.rollouts.rollout import (
        EndedCall as EndedCall,
    )
    from agent_layer.gateway.rollouts.rollout import (
        LiveRollout as LiveRollout,
    )
    from agent_layer.gateway.rollouts.rollout import (
        PrefixAnchor as PrefixAnchor,
    )
    from agent_layer.gateway.rollouts.rollout import (
        PromptContents as PromptContents,
    )
    from agent_layer.gateway.rollouts.rollout import (
        new_key as new_key,
    )
    from agent_layer.gateway.rollouts.rollout import (
        new_rollout as new_rollout,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.rollouts.body_quota": ("HeldBytes",),
            "agent_layer.gateway.rollouts.counters": (
                "Counters",
                "CountingLog",
                "Durations",
                "Sample",
                "SettlingLog",
            ),
            "agent_layer.gateway.rollouts.divergence": (
                "HashedAnswer",
                "History",
                "cause_of_break",
            ),
            "agent_layer.gateway.rollouts.finalize": (
                "Finalizer",
                "record_reward",
                "wait_until",
            ),
            "agent_layer.gateway.rollouts.log_protocol": ("Log",),
            "agent_layer.gateway.rollouts.prefix": ("Hashed",),
            "agent_layer.gateway.rollouts.expiry": (
                "abort_all",
                "reap_expired",
            ),
            "agent_layer.gateway.rollouts.registry": ("RolloutRegistry",),
            "agent_layer.gateway.rollouts.resume": ("AttemptResumption",),
            "agent_layer.gateway.rollouts.retries": (
                "ResponseCache",
                "RetryKey",
                "Call",
            ),
            "agent_layer.gateway.rollouts.rollout": (
                "PromptContents",
                "CallHistory",
                "EndedCall",
                "LiveRollout",
                "PrefixAnchor",
                "new_key",
                "new_rollout",
            ),
        },
    )
