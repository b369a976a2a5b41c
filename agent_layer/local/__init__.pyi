# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .compactor import run_compactor as run_compactor
from .gateway_processes import GatewayProcesses as GatewayProcesses
from .operator_key import claim_operator_key as claim_operator_key, find_api_key as find_api_key
from .operator_key import operator_key_path as operator_key_path
from .page import run_page as run_page
from .parsers import ReasoningParser as ReasoningParser, ToolParser as ToolParser, choose_parsers as choose_parsers
from .providers import run_provider_proxy as run_provider_proxy
from .scripted.completing import ReceivedCall as ReceivedCall
from .scripted.engine import ScriptedEngine as ScriptedEngine
from .scripted.script import ScriptAnswer as ScriptAnswer, ScriptPrompt as ScriptPrompt, token_logprob as token_logprob
from .scripted.serving import serve_in_thread as serve_in_thread
from .stack import ReportPhase as ReportPhase, Stack as Stack, run_stack as run_stack, shell_exports as shell_exports
from .task_options import AllowNetwork as AllowNetwork, ImageMap as ImageMap, SharedVerifier as SharedVerifier
from .task_options import read_task_options as read_task_options
from .vllm import VllmServer as VllmServer
