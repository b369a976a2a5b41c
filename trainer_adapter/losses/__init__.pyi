# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .check import attach_gradient as attach_gradient, check_loss as check_loss, check_named_loss as check_named_loss
from .check import compute_by_rollout as compute_by_rollout, describe_gap as describe_gap, list_metrics as list_metrics
from .check import make_tokens as make_tokens, numeric_gradient as numeric_gradient
from .tokens import LossTokens as LossTokens, TokenLoss as TokenLoss, compute_losses as compute_losses
from .tokens import find_loss as find_loss, find_rollout_value as find_rollout_value
