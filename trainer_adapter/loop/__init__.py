"""The training loop: feed, run control, checkpoints."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "checkpoint": "CheckpointDirectory Cursor hold_run",
        "feed": "count_groups",
        "resumed": "list_fixed_options refuse_changes",
        "run_lock": "claim_run",
        "run": "EmbeddedDriver check_run read_model_bounds stop_on_signals train_run",
    },
)
