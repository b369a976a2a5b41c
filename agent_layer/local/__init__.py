"""Everything on one machine: vLLM, gateway processes, the whole stack."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.local.compactor import run_compactor as run_compactor
    from agent_layer.local.gateway_processes import GatewayProcesses as GatewayProcesses
    from agent_layer.local.page import run_page as run_page
    from agent_layer.local.parsers import (
        ReasoningParser as ReasoningParser,
    )
    from agent_layer.local.parsers import (
        ToolParser as ToolParser,
    )
    from agent_layer.local.parsers import (
        choose_parsers as choose_parsers,
    )
    from agent_layer.local.providers import run_provider_proxy as run_provider_proxy
    from agent_layer.local.stack import (
        ReportPhase as ReportPhase,
    )
    from agent_layer.local.stack import (
        Stack as Stack,
    )
    from agent_layer.local.stack import (
        ensure_api_key as ensure_api_key,
    )
    from agent_layer.local.stack import (
        run_stack as run_stack,
    )
    from agent_layer.local.stack import (
        shell_exports as shell_exports,
    )
    from agent_layer.local.vllm import VllmServer as VllmServer
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.local.compactor": ("run_compactor",),
            "agent_layer.local.gateway_processes": ("GatewayProcesses",),
            "agent_layer.local.page": ("run_page",),
            "agent_layer.local.parsers": (
                "ReasoningParser",
                "ToolParser",
                "choose_parsers",
            ),
            "agent_layer.local.providers": ("run_provider_proxy",),
            "agent_layer.local.stack": (
                "ReportPhase",
                "Stack",
                "ensure_api_key",
                "run_stack",
                "shell_exports",
            ),
            "agent_layer.local.vllm": ("VllmServer",),
        },
    )
