"""The driver on Ray: stock veRL trains, its own vLLM servers sample, our loop decides what is trained when.

``start.ray`` starts its processes.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "end": "END_FILE MAX_CHARACTERS TrainerEnd read_end",
        "nodes.joined": "JoinedCluster",
        "nodes.needs": "find_address needs_of write_needs",
        "overrides": (
            "MARK check_config compose_config context_of environment_of fix_temperature mode_of num_gpus_of"
            " refuse_on_ray temperature_of verl_overrides"
        ),
    },
)
