"""The training loop: feed, run control, checkpoints."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.loop.checkpoint import CheckpointDirectory as CheckpointDirectory
    from trainer_adapter.loop.feed import count_groups as count_groups
    from trainer_adapter.loop.run import Driver as Driver
    from trainer_adapter.loop.run import EmbeddedDriver as EmbeddedDriver
    from trainer_adapter.loop.run import stop_on_signals as stop_on_signals
    from trainer_adapter.loop.run import train_run as train_run
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.loop.checkpoint": ("CheckpointDirectory",),
            "trainer_adapter.loop.feed": ("count_groups",),
            "trainer_adapter.loop.run": (
                "Driver",
                "EmbeddedDriver",
                "stop_on_signals",
                "train_run",
            ),
        },
    )
