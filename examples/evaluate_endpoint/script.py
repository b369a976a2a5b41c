"""Answers of a scripted engine: a model that calculates, and cannot count letters."""

import re

from agent_layer.local import ScriptAnswer, ScriptPrompt

__all__ = ["calculate"]


def calculate(prompt: ScriptPrompt) -> ScriptAnswer:
    """Add or multiply the two numbers of the question."""
    match re.search(r"(\d+) (plus|times) (\d+)", prompt.text):
        case None:
            return "9"
        case found:
            left, right = int(found[1]), int(found[3])
            return str(left + right if found[2] == "plus" else left * right)
