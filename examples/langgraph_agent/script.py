"""Answers of the scripted engine: a model that plans trips, with one deliberate mistake."""

import json

from agent_layer.local import ScriptAnswer, ScriptPrompt

__all__ = ["plan_trip"]


def plan_trip(prompt: ScriptPrompt) -> ScriptAnswer:
    """Look up the fare, convert it, answer it. The mistake: a price in JPY is not converted."""
    city, currency = str(prompt.messages[0]["content"]).removeprefix("A flight to ").rstrip(".").split(" in ")
    match prompt.turn:
        case 0:
            return _use("find_fare", {"city": city})
        case 1 if currency != "JPY":
            return _use("convert", {"amount": float(prompt.text), "currency": currency})
        case _:
            return f"{prompt.text} {currency}"


def _use(name: str, arguments: dict[str, object]) -> ScriptAnswer:
    call = {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"tool_calls": [call]}
