"""Losses over trained tokens, in no layout: those of the papers, veRL's, and what must hold for one of a user."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "check": (
            "attach_gradient check_loss check_named_loss compute_by_rollout describe_gap"
            " list_metrics make_tokens numeric_gradient"
        ),
        "tokens": "LossTokens TokenLoss compute_losses find_loss find_rollout_value",
    },
)
