"""Settings from the environment, and what a process inherits from the one that started it."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.settings.environment import (
        SANDBOX_VARIABLE as SANDBOX_VARIABLE,
    )
    from agent_layer.settings.environment import (
        Inheritance as Inheritance,
    )
    from agent_layer.settings.environment import (
        adopt_environment as adopt_environment,
    )
    from agent_layer.settings.environment import (
        agent_environment as agent_environment,
    )
    from agent_layer.settings.environment import (
        program_environment as program_environment,
    )
    from agent_layer.settings.environment import (
        read_inheritance as read_inheritance,
    )
    from agent_layer.settings.environment import (
        read_model_key as read_model_key,
    )
    from agent_layer.settings.environment import (
        read_sandbox_address as read_sandbox_address,
    )
    from agent_layer.settings.environment import (
        set_temporary_directory as set_temporary_directory,
    )
    from agent_layer.settings.settings import Settings as Settings
    from agent_layer.settings.settings import load_settings as load_settings
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.settings.environment": (
                "Inheritance",
                "SANDBOX_VARIABLE",
                "adopt_environment",
                "agent_environment",
                "program_environment",
                "read_inheritance",
                "read_model_key",
                "read_sandbox_address",
                "set_temporary_directory",
            ),
            "agent_layer.settings.settings": (
                "Settings",
                "load_settings",
            ),
        },
    )
