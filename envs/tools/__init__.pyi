# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .arithmetic import calculator as calculator
from .commands import python as python, shell as shell
from .files import edit_file as edit_file, list_files as list_files, read_file as read_file, write_file as write_file
from .function_tool import FunctionTool as FunctionTool, ToolError as ToolError, tool as tool
from envs.env_context import Tool as Tool, ToolDefinition as ToolDefinition, ToolResult as ToolResult
