# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .access import find_mismatch as find_mismatch, is_operator_key as is_operator_key
from .access import record_operator_key as record_operator_key
from .call_counts import CallCount as CallCount, check_trainable as check_trainable, count_calls as count_calls
from .call_counts import explain_no_policy_call as explain_no_policy_call
from .checkpoints import Checkpoint as Checkpoint, checkpoint_name as checkpoint_name
from .checkpoints import checkpoint_prefix as checkpoint_prefix, checkpoint_trajectory as checkpoint_trajectory
from .checkpoints import parse_checkpoint_key as parse_checkpoint_key, read_checkpoint as read_checkpoint
from .checkpoints import remove_checkpoint as remove_checkpoint, remove_checkpoints as remove_checkpoints
from .checkpoints import store_checkpoint as store_checkpoint
from .data_loss import forget_loss as forget_loss, read_loss as read_loss, record_loss as record_loss
from .outbox import Decisions as Decisions, read_outbox as read_outbox, remove_decisions as remove_decisions
from .supervisor_directory import TakenSandbox as TakenSandbox, make_supervisor_directory as make_supervisor_directory
from .supervisor_directory import read_taken_sandboxes as read_taken_sandboxes
from .supervisor_directory import write_taken_sandboxes as write_taken_sandboxes
from .vocabularies import TokenBytes as TokenBytes, has_vocabulary as has_vocabulary, read_vocabulary as read_vocabulary
from .vocabularies import store_vocabulary as store_vocabulary
