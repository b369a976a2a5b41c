"""Tools: shell, files, Python and calculator in the attempt's sandbox, and any function by ``@tool``."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.env_context import Tool as Tool
    from envs.env_context import ToolDefinition as ToolDefinition
    from envs.env_context import ToolResult as ToolResult
    from envs.tools.arguments import find_misfit as find_misfit
    from envs.tools.arithmetic import calculator as calculator
    from envs.tools.commands import python as python
    from envs.tools.commands import shell as shell
    from envs.tools.files import edit_file as edit_file
    from envs.tools.files import list_files as list_files
    from envs.tools.files import read_file as read_file
    from envs.tools.files import write_file as write_file
    from envs.tools.function_tool import FunctionTool as FunctionTool
    from envs.tools.function_tool import ToolError as ToolError
    from envs.tools.function_tool import tool as tool
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.env_context": (
                "Tool",
                "ToolDefinition",
                "ToolResult",
            ),
            "envs.tools.arguments": ("find_misfit",),
            "envs.tools.arithmetic": ("calculator",),
            "envs.tools.commands": (
                "python",
                "shell",
            ),
            "envs.tools.files": (
                "edit_file",
                "list_files",
                "read_file",
                "write_file",
            ),
            "envs.tools.function_tool": (
                "FunctionTool",
                "ToolError",
                "tool",
            ),
        },
    )

__all__ = [
    "FunctionTool",
    "Tool",
    "ToolDefinition",
    "ToolError",
    "ToolResult",
    "calculator",
    "edit_file",
    "list_files",
    "python",
    "read_file",
    "shell",
    "tool",
    "write_file",
]
