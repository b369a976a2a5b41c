"""The training loop: feed, run control, checkpoints."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "checkpoint": "CheckpointDirectory",
        "feed": "count_groups",
        "ranks": "run_rank train_on_ranks",
        "run": "stop_on_signals train_run",
    },
)
