"""Where a run's tasks come from, and in which order: sources, mix, sequence, held-out tasks."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.tasks.held_out import load_held_out as load_held_out
    from trainer_adapter.tasks.journal import DrawJournal as DrawJournal
    from trainer_adapter.tasks.journal import journal_path as journal_path
    from trainer_adapter.tasks.mix import MixFile as MixFile
    from trainer_adapter.tasks.mix import mix_path as mix_path
    from trainer_adapter.tasks.source import TaskSource as TaskSource
    from trainer_adapter.tasks.source import open_sources as open_sources
    from trainer_adapter.tasks.source import open_training_sources as open_training_sources
    from trainer_adapter.tasks.state import Draw as Draw
    from trainer_adapter.tasks.state import StreamState as StreamState
    from trainer_adapter.tasks.stream import TaskStream as TaskStream
    from trainer_adapter.tasks.task_file import TaskFile as TaskFile
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.tasks.held_out": ("load_held_out",),
            "trainer_adapter.tasks.journal": ("DrawJournal", "journal_path"),
            "trainer_adapter.tasks.mix": ("MixFile", "mix_path"),
            "trainer_adapter.tasks.source": ("TaskSource", "open_sources", "open_training_sources"),
            "trainer_adapter.tasks.state": ("Draw", "StreamState"),
            "trainer_adapter.tasks.stream": ("TaskStream",),
            "trainer_adapter.tasks.task_file": ("TaskFile",),
        },
    )
