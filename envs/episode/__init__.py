"""The loop that lets a model act in an environment: one episode per attempt."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.episode.episode import play as play
else:
    __getattr__ = lazy_exports(__name__, {"envs.episode.episode": ("play",)})
