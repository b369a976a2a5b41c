"""Consumers of finished groups: claims with acknowledgement, and what an update trained on."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.consumers.claims import ONLY_MEMBER as ONLY_MEMBER
    from agent_layer.store.consumers.claims import Consumer as Consumer
    from agent_layer.store.consumers.claims import acknowledge as acknowledge
    from agent_layer.store.consumers.follower import MAX_UNACKED as MAX_UNACKED
    from agent_layer.store.consumers.follower import Follower as Follower
    from agent_layer.store.consumers.follower import FollowOptions as FollowOptions
    from agent_layer.store.consumers.follower import GroupDelivery as GroupDelivery
    from agent_layer.store.consumers.scripts import CLAIM_SCRIPTS as CLAIM_SCRIPTS
    from agent_layer.store.consumers.trained_batches import list_batches as list_batches
    from agent_layer.store.consumers.trained_batches import segments_of_batches as segments_of_batches
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.consumers.claims": (
                "Consumer",
                "ONLY_MEMBER",
                "acknowledge",
            ),
            "agent_layer.store.consumers.follower": (
                "Follower",
                "FollowOptions",
                "GroupDelivery",
                "MAX_UNACKED",
            ),
            "agent_layer.store.consumers.scripts": ("CLAIM_SCRIPTS",),
            "agent_layer.store.consumers.trained_batches": (
                "list_batches",
                "segments_of_batches",
            ),
        },
    )
