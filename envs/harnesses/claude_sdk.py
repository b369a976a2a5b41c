"""Claude's Agent SDK as a coding agent: ``python claude_sdk.py [--continue] MODEL PROMPT`` prints its last message.

An attempt has this file in its HOME, and runs it by the interpreter of its installation, which has the SDK, the claude
binary in it, and nothing of ours.
"""
# pyright: basic, reportMissingImports=false

import asyncio
import sys


async def answer(model: str, prompt: str, *, continues: bool) -> int:
    """Print the last message of a query with the SDK's own options; return the exit status."""
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query  # noqa: PLC0415  # only there is it installed

    options = ClaudeAgentOptions(model=model, permission_mode="bypassPermissions", continue_conversation=continues)
    status = 1
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            sys.stdout.write(f"{message.result or ''}\n")
            status = int(message.is_error)
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(answer(*sys.argv[-2:], continues=sys.argv[1] == "--continue")))
