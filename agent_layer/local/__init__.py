"""Everything on one machine: vLLM, gateway processes, the whole stack."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "compactor": "run_compactor",
        "gateway_processes": "GatewayProcesses",
        "operator_key": "claim_operator_key find_api_key operator_key_path",
        "page": "run_page",
        "parsers": "ReasoningParser ToolParser choose_parsers",
        "providers": "run_provider_proxy",
        "scripted.completing": "ReceivedCall",
        "scripted.engine": "ScriptedEngine",
        "scripted.script": "ScriptAnswer ScriptPrompt token_logprob",
        "scripted.serving": "serve_in_thread",
        "stack": "ReportPhase Stack run_stack shell_exports",
        "task_options": "AllowNetwork ImageMap SharedVerifier read_task_options",
        "vllm": "VllmServer",
    },
)
