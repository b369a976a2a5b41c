"""The driver on Ray: stock veRL trains, its own vLLM servers sample, our loop decides what is trained when.

``start.ray`` starts its processes.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "end": "END_FILE MAX_CHARACTERS TrainerEnd read_end",
        "nodes.joined": "JoinedCluster",
        "nodes.needs": "find_address plan_needs write_needs",
        "overrides": (
            "MARK check_config choose_mode compose_config count_gpus make_environment refuse_on_ray verl_overrides"
        ),
    },
)
