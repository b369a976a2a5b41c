"""The only importers of torch and veRL: trainer, tensors, losses, LoRA, options, weights, export, trackers."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.verl.adapters import check_same as check_same
    from trainer_adapter.verl.adapters import check_targets as check_targets
    from trainer_adapter.verl.adapters import find_adapter as find_adapter
    from trainer_adapter.verl.adapters import merged_weights as merged_weights
    from trainer_adapter.verl.export import check_num_processes as check_num_processes
    from trainer_adapter.verl.export import export_checkpoint as export_checkpoint
    from trainer_adapter.verl.losses import make_loss as make_loss
    from trainer_adapter.verl.options import check_verl_options as check_verl_options
    from trainer_adapter.verl.platform import CpuPlatform as CpuPlatform
    from trainer_adapter.verl.platform import load_engines as load_engines
    from trainer_adapter.verl.trackers import check_trackers as check_trackers
    from trainer_adapter.verl.trackers import open_trackers as open_trackers
    from trainer_adapter.verl.trainer import EmbeddedTrainer as EmbeddedTrainer
    from trainer_adapter.verl.trainer import PolicyTrainer as PolicyTrainer
    from trainer_adapter.verl.trainer import PolicyUpdate as PolicyUpdate
    from trainer_adapter.verl.trainer import UpdateReport as UpdateReport
    from trainer_adapter.verl.weights import PublishedWeights as PublishedWeights
    from trainer_adapter.verl.weights import WeightPublisher as WeightPublisher
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.verl.adapters": (
                "find_adapter",
                "check_same",
                "check_targets",
                "merged_weights",
            ),
            "trainer_adapter.verl.export": (
                "check_num_processes",
                "export_checkpoint",
            ),
            "trainer_adapter.verl.losses": ("make_loss",),
            "trainer_adapter.verl.options": ("check_verl_options",),
            "trainer_adapter.verl.platform": (
                "CpuPlatform",
                "load_engines",
            ),
            "trainer_adapter.verl.trackers": (
                "check_trackers",
                "open_trackers",
            ),
            "trainer_adapter.verl.trainer": (
                "EmbeddedTrainer",
                "PolicyTrainer",
                "PolicyUpdate",
                "UpdateReport",
            ),
            "trainer_adapter.verl.weights": (
                "PublishedWeights",
                "WeightPublisher",
            ),
        },
    )
