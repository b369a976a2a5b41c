"""The driver on Ray: stock veRL trains, its own vLLM servers sample, our loop decides what is trained when.

``start.ray`` starts its processes.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.end import END_FILE as END_FILE
    from trainer_adapter.cluster.end import MAX_CHARACTERS as MAX_CHARACTERS
    from trainer_adapter.cluster.end import TrainerEnd as TrainerEnd
    from trainer_adapter.cluster.end import read_end as read_end
    from trainer_adapter.cluster.overrides import MARK as MARK
    from trainer_adapter.cluster.overrides import check_config as check_config
    from trainer_adapter.cluster.overrides import compose_config as compose_config
    from trainer_adapter.cluster.overrides import context_of as context_of
    from trainer_adapter.cluster.overrides import environment_of as environment_of
    from trainer_adapter.cluster.overrides import fix_temperature as fix_temperature
    from trainer_adapter.cluster.overrides import mode_of as mode_of
    from trainer_adapter.cluster.overrides import num_gpus_of as num_gpus_of
    from trainer_adapter.cluster.overrides import refuse_on_ray as refuse_on_ray
    from trainer_adapter.cluster.overrides import temperature_of as temperature_of
    from trainer_adapter.cluster.overrides import verl_overrides as verl_overrides
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.cluster.end": (
                "END_FILE",
                "MAX_CHARACTERS",
                "TrainerEnd",
                "read_end",
            ),
            "trainer_adapter.cluster.overrides": (
                "MARK",
                "check_config",
                "compose_config",
                "context_of",
                "environment_of",
                "fix_temperature",
                "mode_of",
                "num_gpus_of",
                "refuse_on_ray",
                "temperature_of",
                "verl_overrides",
            ),
        },
    )
