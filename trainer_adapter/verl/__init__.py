"""The only importers of torch and veRL: trainer, tensors, losses, LoRA, options, weights, export, trackers."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "adapters": "check_same check_targets find_adapter merged_weights",
        "export": "check_new check_num_processes export_checkpoint",
        "losses": "LossPlan make_loss weigh_tokens",
        "options": "check_verl_options",
        "platform": "CpuPlatform enter_platform load_engines",
        "ranks": "LeadingSupervisedTrainer LeadingTrainer follow_leader",
        "supervised": "SupervisedTrainer",
        "trackers": "check_trackers open_trackers",
        "trainer": "EmbeddedTrainer PolicyTrainer PolicyUpdate UpdateReport",
        "weights": "PublishedWeights WeightPublisher",
    },
)
