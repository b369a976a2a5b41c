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
        counting_body as counting_body,
    )
    from agent_layer.gateway.dialects.chat import (
        read_count as read_count,
    )
    from agent_layer.gateway.dialects.chat_answer import ChatAnswer as ChatAnswer
    from agent_layer.gateway.dialects.chat_answer import read_answer as read_answer
    from agent_layer.gateway.dialects.chat_stream import GrowingMessage as GrowingMessage
    from agent_layer.gateway.dialects.completions import Completions as Completions
    from agent_layer.gateway.dialects.continuation import (
        JoinedAnswer as JoinedAnswer,
    )
    from agent_layer.gateway.dialects.continuation import (
        continuing_body as continuing_body,
    )
    from agent_layer.gateway.dialects.continuation import (
        may_be_continued as may_be_continued,
    )
    from agent_layer.gateway.dialects.continuation import (
        stream_options_of as stream_options_of,
    )
    from agent_layer.gateway.dialects.messages import Messages as Messages
    from agent_layer.gateway.dialects.refusals import (
        RefusedError as RefusedError,
    )
    from agent_layer.gateway.dialects.refusals import (
        is_openai_error as is_openai_error,
    )
    from agent_layer.gateway.dialects.refusals import (
        openai_error as openai_error,
    )
    from agent_layer.gateway.dialects.refusals import (
        refusal as refusal,
    )
    from agent_layer.gateway.dialects.refusals import (
        sentence_of as sentence_of,
    )
    from agent_layer.gateway.dialects.refusals import (
        shape_of as shape_of,
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
                "counting_body",
                "read_count",
            ),
            "agent_layer.gateway.dialects.chat_answer": (
                "ChatAnswer",
                "read_answer",
            ),
            "agent_layer.gateway.dialects.chat_stream": ("GrowingMessage",),
            "agent_layer.gateway.dialects.completions": ("Completions",),
            "agent_layer.gateway.dialects.continuation": (
                "JoinedAnswer",
                "continuing_body",
                "may_be_continued",
                "stream_options_of",
            ),
            "agent_layer.gateway.dialects.messages": ("Messages",),
            "agent_layer.gateway.dialects.refusals": (
                "RefusedError",
                "is_openai_error",
                "openai_error",
                "refusal",
                "sentence_of",
                "shape_of",
            ),
            "agent_layer.gateway.dialects.responses": ("Responses",),
        },
    )
