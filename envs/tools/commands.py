"""Tools that run commands in the attempt's sandbox: ``shell`` and ``python``."""

from typing import Annotated, Final

import msgspec

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import ExecResult
from envs.env_context import EnvContext
from envs.tokens import cut_middle
from envs.tools.function_tool import MAX_TOKENS, tool

_SECONDS: Final = 30.0
_MAX_SECONDS: Final = 600.0
_MAX_OUTPUT_BYTES: Final = 4 << 20
Seconds = Annotated[float, msgspec.Meta(gt=0, le=_MAX_SECONDS)]

_SHELL: Final = """\
state="${TMPDIR:-/tmp}/.shell_state"
[ -f "$state" ] && . "$state" 2>/dev/null
keep_state() {
  { declare -px; printf 'cd -- %q\\n' "$PWD"; } > "$state.$$" 2>/dev/null && mv -f -- "$state.$$" "$state" 2>/dev/null
}
trap keep_state EXIT
exec 2>&1
eval "$1"
"""
"""Each command has a bash of its own, so none can break the next. What it exports and where it ends are kept in a file
of the box. A command that is killed leaves the state before it."""


@tool
async def shell(context: EnvContext, command: str, seconds: Seconds = _SECONDS) -> str:
    """Run a command with bash in the sandbox and return its output.

    The working directory and exported variables stay for the next command. What a command leaves running ends with it.

    Args:
        context: the attempt, with its sandbox.
        command: one or several lines of bash.
        seconds: time limit.
    """
    argv = ["bash", "-c", _SHELL, "bash", command]
    return _describe(await context.sandbox.exec(argv, seconds=seconds, max_output=_MAX_OUTPUT_BYTES), seconds)


@tool
async def python(context: EnvContext, code: str, seconds: Seconds = _SECONDS) -> str:
    """Run Python code in the sandbox and return what it prints. Each call is a new process; files stay.

    Args:
        context: the attempt, with its sandbox.
        code: a whole program; print what you need to see.
        seconds: time limit.
    """
    return _describe(
        await context.sandbox.exec(
            ["python3", "-"], stdin=code.encode("utf-8", "replace"), seconds=seconds, max_output=_MAX_OUTPUT_BYTES
        ),
        seconds,
    )


def _describe(result: ExecResult, seconds: float) -> str:
    """Return what a command wrote, and how it ended where that is not plain.

    Raises: SandboxError: the box was lost.
    """
    output = b"\n".join(filter(None, (result.stdout.rstrip(b"\n"), result.stderr.rstrip(b"\n"))))
    text = cut_middle(output.decode("utf-8", "replace"), MAX_TOKENS)
    match result.status:
        case "gone":
            raise SandboxError("sandbox: the box was lost while a tool ran in it; the attempt is made again")
        case "exited":
            ending = f"exit status {result.exit_code}" if result.exit_code else ""
        case "signalled":
            ending = f"ended by signal {result.signal}"
        case "timeout":
            ending = f"killed after {seconds:g} s; allow more seconds, or do less at once"
        case "oom":
            ending = "killed, because the sandbox has no more memory; use less"
        case "output_limit":
            ending = f"killed after {_MAX_OUTPUT_BYTES >> 20} MB of output; write less, or into a file"
    if result.truncated and result.status != "output_limit":
        ending = f"{ending or 'exit status 0'}; part of the output is missing"
    return "\n".join(filter(None, (text, f"[{ending}]" if ending else ""))) or "[no output]"
