"""Everything on one machine: vLLM, gateway processes, the whole stack."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.local.gateway_processes import GatewayProcesses as GatewayProcesses
    from agent_layer.local.providers import with_providers as with_providers
    from agent_layer.local.stack import (
        Stack as Stack,
    )
    from agent_layer.local.stack import (
        export_lines as export_lines,
    )
    from agent_layer.local.stack import (
        run_stack as run_stack,
    )
    from agent_layer.local.stack import (
        with_key as with_key,
    )
    from agent_layer.local.vllm import VllmServer as VllmServer
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.local.gateway_processes": ("GatewayProcesses",),
            "agent_layer.local.providers": ("with_providers",),
            "agent_layer.local.stack": (
                "Stack",
                "export_lines",
                "run_stack",
                "with_key",
            ),
            "agent_layer.local.vllm": ("VllmServer",),
        },
    )
