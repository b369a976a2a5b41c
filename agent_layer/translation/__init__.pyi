# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .google import find_counted as find_counted, translate_google as translate_google
from .members import check_counts as check_counts, is_harmless as is_harmless
from .messages import Thread as Thread, translate_messages as translate_messages
from .request import Pieces as Pieces, Translation as Translation, encoded as encoded, read_pieces as read_pieces
from .responses import ResolveItem as ResolveItem, translate_responses as translate_responses
from .sealed import Signature as Signature, parse_arguments as parse_arguments, seal_reasoning as seal_reasoning
from .tools import HOSTED as HOSTED, ToolName as ToolName, read_custom_input as read_custom_input
from .tools import read_tool_names as read_tool_names, write_custom_input as write_custom_input
from .turns import assistant_message as assistant_message, text_part as text_part, tool_call as tool_call
