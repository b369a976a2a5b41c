"""The training loop: feed, run control, checkpoints."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.loop.checkpoint import CheckpointDirectory as CheckpointDirectory
    from trainer_adapter.loop.feed import count_groups as count_groups
    from trainer_adapter.loop.ranks import run_rank as run_rank
    from trainer_adapter.loop.ranks import train_on_ranks as train_on_ranks
    from trainer_adapter.loop.run import Driver as Driver
    from trainer_adapter.loop.run import stop_on_signals as stop_on_signals
    from trainer_adapter.loop.run import train_run as train_run
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.loop.checkpoint": ("CheckpointDirectory",),
            "trainer_adapter.loop.feed": ("count_groups",),
            "trainer_adapter.loop.ranks": (
                "run_rank",
                "train_on_ranks",
            ),
            "trainer_adapter.loop.run": (
                "Driver",
                "stop_on_signals",
                "train_run",
            ),
        },
    )
