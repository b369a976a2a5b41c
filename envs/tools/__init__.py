"""Tools: shell, files, Python and calculator in the attempt's sandbox, and any function by ``@tool``."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "arithmetic": "calculator",
        "commands": "python shell",
        "envs.env_context": "Tool ToolDefinition ToolResult",
        "files": "edit_file list_files read_file write_file",
        "function_tool": "FunctionTool ToolError tool",
    },
)
