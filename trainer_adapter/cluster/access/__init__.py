"""Who reaches veRL's own servers: those with their key. vLLM imports the middleware by its path."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.access.key import RequireKey as RequireKey
    from trainer_adapter.cluster.access.key import access_key as access_key
else:
    __getattr__ = lazy_exports(__name__, {"trainer_adapter.cluster.access.key": ("RequireKey", "access_key")})
