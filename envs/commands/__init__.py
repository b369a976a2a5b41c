"""Commands as agents: programs in any language that call the model over HTTP."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "directories": "hash_template",
        "options": "",
        "plan": "CommandEnd CommandOptions CommandPlace CommandPlan read_last_line",
        "target": "CommandTarget",
    },
)
