"""Answers about tokens of trajectories: which each step adds, where they fork, and where those of two differ."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.reads.tokens.diff import show_diff as show_diff
    from agent_layer.view.reads.tokens.forks import show_forks as show_forks
    from agent_layer.view.reads.tokens.tokens import Places as Places
    from agent_layer.view.reads.tokens.tokens import break_cause as break_cause
    from agent_layer.view.reads.tokens.tokens import show_step_tokens as show_step_tokens
    from agent_layer.view.reads.tokens.tokens import show_tokens as show_tokens
    from agent_layer.view.reads.tokens.tokens import token_ids as token_ids
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.reads.tokens.diff": ("show_diff",),
            "agent_layer.view.reads.tokens.forks": ("show_forks",),
            "agent_layer.view.reads.tokens.tokens": (
                "Places",
                "break_cause",
                "show_step_tokens",
                "show_tokens",
                "token_ids",
            ),
        },
    )
