"""Settings from the environment, and what a process inherits from the one that started it."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "environment": (
            "SANDBOX_VARIABLE Inheritance adopt_environment agent_environment program_environment read_inheritance"
            " read_model_key read_sandbox_address set_temporary_directory"
        ),
        "settings": "Settings load_settings",
    },
)
