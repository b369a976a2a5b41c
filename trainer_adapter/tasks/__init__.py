"""Where a run's tasks come from, and in which order: sources, mix, sequence, held-out tasks."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "exclusions": "read_exclusions write_exclusions",
        "held_out": "HeldOutFilter load_held_out open_held_out read_held_out read_held_out_sets read_named_sets",
        "journal": "DrawJournal journal_path",
        "mix": "MixFile mix_path",
        "source": "TaskSource open_sources open_training_sources",
        "state": "Draw StreamState",
        "stream": "TaskStream",
        "task_file": "TaskFile",
    },
)
