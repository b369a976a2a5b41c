"""The conformance kit: asks an LLM capture endpoint, ours or another's, and compares its record with its engine's."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "adapters": "CaptureAdapter Door RecordedAnswer RolloutAdapter load_adapter",
        "checks": "CHECKS",
        "engine": "KitEngine serve_kit_engine",
        "ours": "open_own_gateway read_shown_step run_own_gateway",
        "run": "CheckResult list_rows run_checks wait_for",
    },
)
