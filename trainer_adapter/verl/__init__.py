"""The only importers of torch and veRL: trainer, tensors, losses, LoRA, options, weights, export, trackers."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.verl.export import export_checkpoint as export_checkpoint
    from trainer_adapter.verl.options import check_verl_options as check_verl_options
    from trainer_adapter.verl.trackers import check_trackers as check_trackers
    from trainer_adapter.verl.trackers import open_trackers as open_trackers
    from trainer_adapter.verl.trainer import EmbeddedTrainer as EmbeddedTrainer
    from trainer_adapter.verl.trainer import UpdateReport as UpdateReport
    from trainer_adapter.verl.weights import WeightPublisher as WeightPublisher
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.verl.export": ("export_checkpoint",),
            "trainer_adapter.verl.options": ("check_verl_options",),
            "trainer_adapter.verl.trackers": (
                "check_trackers",
                "open_trackers",
            ),
            "trainer_adapter.verl.trainer": (
                "EmbeddedTrainer",
                "UpdateReport",
            ),
            "trainer_adapter.verl.weights": ("WeightPublisher",),
        },
    )
