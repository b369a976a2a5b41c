"""The LLM endpoint in front of the engines: records each call, exactly."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "engines.models": "read_model_names",
        "http.bind": "check_exposure load_tls",
        "http.server": "serve_until_stopped",
        "serving": "listen serve_gateway",
    },
)
