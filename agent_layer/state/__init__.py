"""State that services share: outbox, checkpoints, call counts, vocabularies, taken sandboxes of this machine."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.state.call_counts import (
        CallCount as CallCount,
    )
    from agent_layer.state.call_counts import (
        check_trainable as check_trainable,
    )
    from agent_layer.state.call_counts import (
        count_calls as count_calls,
    )
    from agent_layer.state.call_counts import (
        explain_no_policy_call as explain_no_policy_call,
    )
    from agent_layer.state.checkpoints import (
        Checkpoint as Checkpoint,
    )
    from agent_layer.state.checkpoints import (
        checkpoint_name as checkpoint_name,
    )
    from agent_layer.state.checkpoints import (
        checkpoint_prefix as checkpoint_prefix,
    )
    from agent_layer.state.checkpoints import (
        checkpoint_trajectory as checkpoint_trajectory,
    )
    from agent_layer.state.checkpoints import (
        parse_checkpoint_key as parse_checkpoint_key,
    )
    from agent_layer.state.checkpoints import (
        read_checkpoint as read_checkpoint,
    )
    from agent_layer.state.checkpoints import (
        remove_checkpoint as remove_checkpoint,
    )
    from agent_layer.state.checkpoints import (
        remove_checkpoints as remove_checkpoints,
    )
    from agent_layer.state.checkpoints import (
        store_checkpoint as store_checkpoint,
    )
    from agent_layer.state.outbox import read_outbox as read_outbox
    from agent_layer.state.outbox import remove_decisions as remove_decisions
    from agent_layer.state.supervisor_directory import TakenSandbox as TakenSandbox
    from agent_layer.state.supervisor_directory import hold_supervisor_directory as hold_supervisor_directory
    from agent_layer.state.supervisor_directory import make_supervisor_directory as make_supervisor_directory
    from agent_layer.state.supervisor_directory import read_taken_sandboxes as read_taken_sandboxes
    from agent_layer.state.supervisor_directory import (
        remove_stale_supervisor_directories as remove_stale_supervisor_directories,
    )
    from agent_layer.state.supervisor_directory import write_taken_sandboxes as write_taken_sandboxes
    from agent_layer.state.vocabularies import TokenBytes as TokenBytes
    from agent_layer.state.vocabularies import has_vocabulary as has_vocabulary
    from agent_layer.state.vocabularies import read_vocabulary as read_vocabulary
    from agent_layer.state.vocabularies import store_vocabulary as store_vocabulary
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.state.call_counts": (
                "CallCount",
                "check_trainable",
                "count_calls",
                "explain_no_policy_call",
            ),
            "agent_layer.state.checkpoints": (
                "Checkpoint",
                "parse_checkpoint_key",
                "checkpoint_name",
                "checkpoint_prefix",
                "read_checkpoint",
                "remove_checkpoint",
                "remove_checkpoints",
                "store_checkpoint",
                "checkpoint_trajectory",
            ),
            "agent_layer.state.outbox": (
                "remove_decisions",
                "read_outbox",
            ),
            "agent_layer.state.supervisor_directory": (
                "TakenSandbox",
                "hold_supervisor_directory",
                "make_supervisor_directory",
                "read_taken_sandboxes",
                "remove_stale_supervisor_directories",
                "write_taken_sandboxes",
            ),
            "agent_layer.state.vocabularies": (
                "TokenBytes",
                "has_vocabulary",
                "read_vocabulary",
                "store_vocabulary",
            ),
        },
    )
