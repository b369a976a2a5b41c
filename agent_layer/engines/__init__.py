"""The control plane of inference engines: registry, control calls, policy versions."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.engines.control import ADAPTER_FILE as ADAPTER_FILE
    from agent_layer.engines.control import EngineControl as EngineControl
    from agent_layer.engines.control import EngineReport as EngineReport
    from agent_layer.engines.control import read_model_list as read_model_list
    from agent_layer.engines.fingerprints import read_fingerprints as read_fingerprints
    from agent_layer.engines.join import (
        drain_engine as drain_engine,
    )
    from agent_layer.engines.join import (
        join_engine as join_engine,
    )
    from agent_layer.engines.join import (
        leave_engine as leave_engine,
    )
    from agent_layer.engines.join import (
        open_engine_registry as open_engine_registry,
    )
    from agent_layer.engines.join import (
        read_engine_address as read_engine_address,
    )
    from agent_layer.engines.join import (
        register_engine as register_engine,
    )
    from agent_layer.engines.join import (
        remove_ended_engines as remove_ended_engines,
    )
    from agent_layer.engines.owners import PushedVersion as PushedVersion
    from agent_layer.engines.owners import hold_engines as hold_engines
    from agent_layer.engines.owners import release_engines as release_engines
    from agent_layer.engines.policies import (
        behind_seconds as behind_seconds,
    )
    from agent_layer.engines.policies import (
        get_policy as get_policy,
    )
    from agent_layer.engines.policies import (
        newest_number as newest_number,
    )
    from agent_layer.engines.policies import (
        newest_policy as newest_policy,
    )
    from agent_layer.engines.policies import (
        register_policy as register_policy,
    )
    from agent_layer.engines.registry import Engine as Engine
    from agent_layer.engines.registry import EngineHold as EngineHold
    from agent_layer.engines.registry import EngineRegistry as EngineRegistry
    from agent_layer.engines.sampling import BAD_LOGPROBS as BAD_LOGPROBS
    from agent_layer.engines.sampling import GREEDY as GREEDY
    from agent_layer.engines.sampling import LOWEST_TEMPERATURE as LOWEST_TEMPERATURE
    from agent_layer.engines.sampling import NEUTRAL_SAMPLING as NEUTRAL_SAMPLING
    from agent_layer.engines.sampling import NEUTRALISED as NEUTRALISED
    from agent_layer.engines.sampling import NO_LOGPROBS as NO_LOGPROBS
    from agent_layer.engines.sampling import RAW_LOGPROBS as RAW_LOGPROBS
    from agent_layer.engines.sampling import SMALLEST_LOGPROB as SMALLEST_LOGPROB
    from agent_layer.engines.sampling import UNREPRODUCIBLE as UNREPRODUCIBLE
    from agent_layer.engines.sampling import can_neutralise as can_neutralise
    from agent_layer.engines.sampling import find_unreproducible as find_unreproducible
    from agent_layer.engines.sampling import is_neutral as is_neutral
    from agent_layer.engines.sampling import neutral_value as neutral_value
    from agent_layer.engines.teacher import TeacherEngine as TeacherEngine
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.engines.control": (
                "ADAPTER_FILE",
                "EngineControl",
                "EngineReport",
                "read_model_list",
            ),
            "agent_layer.engines.fingerprints": ("read_fingerprints",),
            "agent_layer.engines.join": (
                "open_engine_registry",
                "remove_ended_engines",
                "drain_engine",
                "join_engine",
                "read_engine_address",
                "leave_engine",
                "register_engine",
            ),
            "agent_layer.engines.owners": (
                "PushedVersion",
                "hold_engines",
                "release_engines",
            ),
            "agent_layer.engines.policies": (
                "behind_seconds",
                "get_policy",
                "newest_number",
                "newest_policy",
                "register_policy",
            ),
            "agent_layer.engines.registry": (
                "Engine",
                "EngineHold",
                "EngineRegistry",
            ),
            "agent_layer.engines.sampling": (
                "BAD_LOGPROBS",
                "GREEDY",
                "LOWEST_TEMPERATURE",
                "NEUTRALISED",
                "NEUTRAL_SAMPLING",
                "RAW_LOGPROBS",
                "SMALLEST_LOGPROB",
                "NO_LOGPROBS",
                "UNREPRODUCIBLE",
                "can_neutralise",
                "find_unreproducible",
                "is_neutral",
                "neutral_value",
            ),
            "agent_layer.engines.teacher": ("TeacherEngine",),
        },
    )
