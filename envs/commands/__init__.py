"""Commands as agents: programs in any language that call the model over HTTP."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "directories": "OUTSIDE hash_template",
        "boxed": "choose_box",
        "options": "BoxOption CommandFlags as_arguments make_box_spec take_command_flags",
        "plan": "CommandEnd CommandOptions CommandPlace CommandPlan TaskDefaults read_last_line",
        "target": "CommandTarget",
        "tunnel": "open_tunnel",
    },
)
