"""A scripted engine: answers like vLLM, needs no model."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.local.scripted.engine import ScriptedEngine as ScriptedEngine
    from agent_layer.local.scripted.script import ScriptAnswer as ScriptAnswer
    from agent_layer.local.scripted.script import ScriptPrompt as ScriptPrompt
    from agent_layer.local.scripted.serving import serve_in_thread as serve_in_thread
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.local.scripted.engine": ("ScriptedEngine",),
            "agent_layer.local.scripted.script": (
                "ScriptAnswer",
                "ScriptPrompt",
            ),
            "agent_layer.local.scripted.serving": ("serve_in_thread",),
        },
    )
