"""Open rollouts at the gateway: keys, budgets, retries, prefixes, finalising, resuming."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.rollouts.counters import (
        Counters as Counters,
    )
    from agent_layer.gateway.rollouts.counters import (
        CountingLog as CountingLog,
    )
    from agent_layer.gateway.rollouts.counters import (
        Sample as Sample,
    )
    from agent_layer.gateway.rollouts.counters import (
        SettlingLog as SettlingLog,
    )
    from agent_layer.gateway.rollouts.divergence import History as History
    from agent_layer.gateway.rollouts.divergence import cause_of_break as cause_of_break
    from agent_layer.gateway.rollouts.finalize import Sealer as Sealer
    from agent_layer.gateway.rollouts.finalize import reward_of as reward_of
    from agent_layer.gateway.rollouts.finalize import wait_until as wait_until
    from agent_layer.gateway.rollouts.log import Log as Log
    from agent_layer.gateway.rollouts.prefix import Hashed as Hashed
    from agent_layer.gateway.rollouts.reaper import give_up_all as give_up_all
    from agent_layer.gateway.rollouts.reaper import tend as tend
    from agent_layer.gateway.rollouts.registry import Rollouts as Rollouts
    from agent_layer.gateway.rollouts.resume import Handover as Handover
    from agent_layer.gateway.rollouts.retries import AnswerShelf as AnswerShelf
    from agent_layer.gateway.rollouts.retries import Asking as Asking
    from agent_layer.gateway.rollouts.retries import Call as Call
    from agent_layer.gateway.rollouts.rollout import (
        Asked as Asked,
    )
    from agent_layer.gateway.rollouts.rollout import (
        EndedCall as EndedCall,
    )
    from agent_layer.gateway.rollouts.rollout import (
        LiveRollout as LiveRollout,
    )
    from agent_layer.gateway.rollouts.rollout import (
        Place as Place,
    )
    from agent_layer.gateway.rollouts.rollout import (
        new_key as new_key,
    )
    from agent_layer.gateway.rollouts.rollout import (
        rollout_of as rollout_of,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.rollouts.counters": (
                "Counters",
                "CountingLog",
                "Sample",
                "SettlingLog",
            ),
            "agent_layer.gateway.rollouts.divergence": (
                "History",
                "cause_of_break",
            ),
            "agent_layer.gateway.rollouts.finalize": (
                "Sealer",
                "reward_of",
                "wait_until",
            ),
            "agent_layer.gateway.rollouts.log": ("Log",),
            "agent_layer.gateway.rollouts.prefix": ("Hashed",),
            "agent_layer.gateway.rollouts.reaper": (
                "give_up_all",
                "tend",
            ),
            "agent_layer.gateway.rollouts.registry": ("Rollouts",),
            "agent_layer.gateway.rollouts.resume": ("Handover",),
            "agent_layer.gateway.rollouts.retries": (
                "AnswerShelf",
                "Asking",
                "Call",
            ),
            "agent_layer.gateway.rollouts.rollout": (
                "Asked",
                "EndedCall",
                "LiveRollout",
                "Place",
                "new_key",
                "rollout_of",
            ),
        },
    )
