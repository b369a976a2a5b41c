"""Coding agents as they ship: one declaration each, a pinned version, and attempts without a wrapper."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "command": "DIFF PREFIX make_harness_target",
        "harness": "Harness SideCall ToolShape fill_tool",
        "install": "Installation",
        "qualified": "ALLOWED_LOSSES PartFigures Qualification RenderedFigures find_qualification save_qualification",
        "registry": "find_harness list_harness_names",
    },
)
