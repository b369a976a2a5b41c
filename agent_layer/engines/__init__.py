"""The control plane of inference engines: registry, kinds, control calls, policy versions."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "control": "EngineControl EngineReport read_model_list",
        "entry": "Engine",
        "fingerprints": "read_fingerprints",
        "holds": "EngineHold",
        "join": (
            "drain_engine join_engine leave_engine open_engine_registry read_engine_address register_engine"
            " remove_ended_engines"
        ),
        "kinds": "ADAPTER_FILE ADAPTER_SUFFIX KINDS",
        "owners": "PushedVersion hold_engines release_engines",
        "policies": "behind_seconds get_policy newest_number newest_policy register_policy restore_policies",
        "registry": "EngineRegistry",
        "sampling": (
            "BAD_LOGPROBS GRAMMARS GREEDY LOWEST_TEMPERATURE NEUTRALISED NEUTRAL_SAMPLING NO_LOGPROBS RAW_LOGPROBS"
            " SMALLEST_LOGPROB UNREPRODUCIBLE can_neutralise find_unreproducible is_neutral neutral_value"
        ),
        "teacher": "TeacherEngine",
    },
)
