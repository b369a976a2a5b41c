"""State that services share: outbox, checkpoints, call counts, vocabularies, taken sandboxes of this machine."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "access": "find_mismatch is_operator_key record_operator_key",
        "call_counts": "CallCount check_trainable count_calls explain_no_policy_call",
        "checkpoints": (
            "Checkpoint checkpoint_name checkpoint_prefix checkpoint_trajectory parse_checkpoint_key read_checkpoint"
            " remove_checkpoint remove_checkpoints store_checkpoint"
        ),
        "data_loss": "forget_loss read_loss record_loss",
        "outbox": "Decisions read_outbox remove_decisions",
        "supervisor_directory": ("TakenSandbox make_supervisor_directory read_taken_sandboxes write_taken_sandboxes"),
        "vocabularies": "TokenBytes has_vocabulary read_vocabulary store_vocabulary",
    },
)
