"""Responses, Messages and Google's API in the words of chat completions, for gateway and tracer alike."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "answer": "Answer read_as read_events",
        "finishes": "find_finish",
        "google": "find_counted join_content_pieces read_content translate_google",
        "members": "check_counts is_harmless",
        "messages": "Thread join_message read_message translate_messages",
        "request": "Losses Pieces Translation encoded read_pieces",
        "responses": "ResolveItem join_response read_response translate_responses",
        "sealed": "Signature parse_arguments seal_reasoning",
        "tools": "HOSTED ToolName read_custom_input read_tool_names write_custom_input",
        "turns": "assistant_message text_part tool_call",
    },
)
