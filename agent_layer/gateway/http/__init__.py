"""HTTP shell of the gateway: routes, keys, errors, binding, peers, metrics."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.http.auth import Access as Access
    from agent_layer.gateway.http.bind import check_exposure as check_exposure
    from agent_layer.gateway.http.bind import load_tls as load_tls
    from agent_layer.gateway.http.engine_routes import EngineRoutes as EngineRoutes
    from agent_layer.gateway.http.errors import ErrorAnswers as ErrorAnswers
    from agent_layer.gateway.http.errors import as_json as as_json
    from agent_layer.gateway.http.metrics import backlog_bytes as backlog_bytes
    from agent_layer.gateway.http.metrics import metrics_text as metrics_text
    from agent_layer.gateway.http.model_routes import ModelRoutes as ModelRoutes
    from agent_layer.gateway.http.peers import PeerProxy as PeerProxy
    from agent_layer.gateway.http.rollout_routes import RolloutRoutes as RolloutRoutes
    from agent_layer.gateway.http.server import BACKLOG as BACKLOG
    from agent_layer.gateway.http.server import COUNTERS as COUNTERS
    from agent_layer.gateway.http.server import GuardedRunner as GuardedRunner
    from agent_layer.gateway.http.server import serve_until_stopped as serve_until_stopped
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.http.auth": ("Access",),
            "agent_layer.gateway.http.bind": (
                "check_exposure",
                "load_tls",
            ),
            "agent_layer.gateway.http.engine_routes": ("EngineRoutes",),
            "agent_layer.gateway.http.errors": (
                "ErrorAnswers",
                "as_json",
            ),
            "agent_layer.gateway.http.metrics": (
                "backlog_bytes",
                "metrics_text",
            ),
            "agent_layer.gateway.http.model_routes": ("ModelRoutes",),
            "agent_layer.gateway.http.peers": ("PeerProxy",),
            "agent_layer.gateway.http.rollout_routes": ("RolloutRoutes",),
            "agent_layer.gateway.http.server": (
                "BACKLOG",
                "COUNTERS",
                "GuardedRunner",
                "serve_until_stopped",
            ),
        },
    )
