# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .compactor import run_compactor as run_compactor
from .gateway_processes import GatewayProcesses as GatewayProcesses
from .page import run_page as run_page
from .parsers import ReasoningParser as ReasoningParser, ToolParser as ToolParser, choose_parsers as choose_parsers
from .providers import run_provider_proxy as run_provider_proxy
from .scripted.completing import ReceivedCall as ReceivedCall
from .scripted.engine import ScriptedEngine as ScriptedEngine
from .scripted.script import ScriptAnswer as ScriptAnswer, ScriptPrompt as ScriptPrompt, token_logprob as token_logprob
from .scripted.serving import serve_in_thread as serve_in_thread
from .stack import ReportPhase as ReportPhase, Stack as Stack, ensure_api_key as ensure_api_key, run_stack as run_stack
from .stack import shell_exports as shell_exports
from .vllm import VllmServer as VllmServer
