# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .answer import Answer as Answer, read_as as read_as, read_events as read_events
from .finishes import find_finish as find_finish
from .google import find_counted as find_counted, join_content_pieces as join_content_pieces
from .google import read_content as read_content, translate_google as translate_google
from .members import check_counts as check_counts, is_harmless as is_harmless
from .messages import Thread as Thread, join_message as join_message, read_message as read_message
from .messages import translate_messages as translate_messages
from .request import Losses as Losses, Pieces as Pieces, Translation as Translation, encoded as encoded
from .request import read_pieces as read_pieces
from .responses import ResolveItem as ResolveItem, join_response as join_response, read_response as read_response
from .responses import translate_responses as translate_responses
from .sealed import Signature as Signature, parse_arguments as parse_arguments, seal_reasoning as seal_reasoning
from .tools import HOSTED as HOSTED, ToolName as ToolName, read_custom_input as read_custom_input
from .tools import read_tool_names as read_tool_names, write_custom_input as write_custom_input
from .turns import assistant_message as assistant_message, text_part as text_part, tool_call as tool_call
