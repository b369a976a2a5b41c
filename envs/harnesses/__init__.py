"""Coding agents as they ship: one declaration each, a pinned version, and attempts without a wrapper.

``__all__`` names what a package needs that registers a harness of its own.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {"harness": "Harness SideCall ToolShape"},
    {
        "command": "PREFIX check_harness make_harness_target",
        "harness": "fill_tool",
        "install": "Installation",
        "qualified": (
            "ALLOWED_LOSSES NeededLengths PartFigures Qualification RenderedFigures find_qualification"
            " save_qualification"
        ),
        "registry": "find_harness",
    },
)
