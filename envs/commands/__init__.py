"""Commands as agents: programs in any language that call the model over HTTP."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "directories": "OUTSIDE hash_template",
        "options": (
            "BOX_MEMORY_MB ArtifactsOption BoxMemoryOption BoxOption DiffOption HomeOption KeepWorkdirOption"
            " MountsOption ShareWorkdirOption WorkdirOption as_arguments make_command_options"
        ),
        "plan": "CommandEnd CommandOptions CommandPlace CommandPlan read_last_line",
        "target": "CommandTarget",
    },
)
