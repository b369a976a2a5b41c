"""Several processes that share one model, as torchrun starts them."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.verl.ranks.leader import LeadingTrainer as LeadingTrainer
    from trainer_adapter.verl.ranks.leader import follow_leader as follow_leader
    from trainer_adapter.verl.ranks.shares import join_rows as join_rows
    from trainer_adapter.verl.ranks.shares import share_rows as share_rows
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.verl.ranks.leader": (
                "LeadingTrainer",
                "follow_leader",
            ),
            "trainer_adapter.verl.ranks.shares": (
                "join_rows",
                "share_rows",
            ),
        },
    )
