"""Wire formats of clients, translated from and to chat completions."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.gateway.dialects.base import AnswerStream as AnswerStream
    from agent_layer.gateway.dialects.base import Dialect as Dialect
    from agent_layer.gateway.dialects.base import Exchange as Exchange
    from agent_layer.gateway.dialects.chat import (
        ChatRequest as ChatRequest,
    )
    from agent_layer.gateway.dialects.chat import (
        read_count as read_count,
    )
    from agent_layer.gateway.dialects.chat import (
        tokenize_body as tokenize_body,
    )
    from agent_layer.gateway.dialects.chat_answer import ChatAnswer as ChatAnswer
    from agent_layer.gateway.dialects.chat_answer import read_answer as read_answer
    from agent_layer.gateway.dialects.completions import Completions as Completions
    from agent_layer.gateway.dialects.continuation import (
        JoinedAnswer as JoinedAnswer,
    )
    from agent_layer.gateway.dialects.continuation import (
        continuation_body as continuation_body,
    )
    from agent_layer.gateway.dialects.continuation import (
        read_stream_options as read_stream_options,
    )
    from agent_layer.gateway.dialects.continuation import (
        supports_continuation as supports_continuation,
    )
    from agent_layer.gateway.dialects.endings import AnswerEnd as AnswerEnd
    from agent_layer.gateway.dialects.endings import judge_end as judge_end
    from agent_layer.gateway.dialects.messages import Messages as Messages
    from agent_layer.gateway.dialects.refusals import (
        BAD_REQUEST as BAD_REQUEST,
    )
    from agent_layer.gateway.dialects.refusals import (
        CONTEXT_FULL as CONTEXT_FULL,
    )
    from agent_layer.gateway.dialects.refusals import (
        NO_TOOL_PARSER as NO_TOOL_PARSER,
    )
    from agent_layer.gateway.dialects.refusals import (
        RefusedError as RefusedError,
    )
    from agent_layer.gateway.dialects.refusals import (
        error_shape as error_shape,
    )
    from agent_layer.gateway.dialects.refusals import (
        is_context_full as is_context_full,
    )
    from agent_layer.gateway.dialects.refusals import (
        is_openai_error as is_openai_error,
    )
    from agent_layer.gateway.dialects.refusals import (
        lacks_tool_parser as lacks_tool_parser,
    )
    from agent_layer.gateway.dialects.refusals import (
        openai_error as openai_error,
    )
    from agent_layer.gateway.dialects.refusals import (
        read_engine_error as read_engine_error,
    )
    from agent_layer.gateway.dialects.refusals import (
        refusal as refusal,
    )
    from agent_layer.gateway.dialects.refusals import (
        refuse_unread as refuse_unread,
    )
    from agent_layer.gateway.dialects.responses import Responses as Responses
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.gateway.dialects.base": (
                "AnswerStream",
                "Dialect",
                "Exchange",
            ),
            "agent_layer.gateway.dialects.chat": (
                "ChatRequest",
                "tokenize_body",
                "read_count",
            ),
            "agent_layer.gateway.dialects.chat_answer": (
                "ChatAnswer",
                "read_answer",
            ),
            "agent_layer.gateway.dialects.completions": ("Completions",),
            "agent_layer.gateway.dialects.continuation": (
                "JoinedAnswer",
                "continuation_body",
                "supports_continuation",
                "read_stream_options",
            ),
            "agent_layer.gateway.dialects.endings": (
                "AnswerEnd",
                "judge_end",
            ),
            "agent_layer.gateway.dialects.messages": ("Messages",),
            "agent_layer.gateway.dialects.refusals": (
                "RefusedError",
                "is_openai_error",
                "openai_error",
                "refusal",
                "refuse_unread",
                "BAD_REQUEST",
                "CONTEXT_FULL",
                "NO_TOOL_PARSER",
                "is_context_full",
                "lacks_tool_parser",
                "read_engine_error",
                "error_shape",
            ),
            "agent_layer.gateway.dialects.responses": ("Responses",),
        },
    )
