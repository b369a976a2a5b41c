"""The toy agent: three calls, then its own reward. ``play`` runs in a worker's process.

The model is the scripted engine, so that the benchmark measures everything but a model.
"""

import openai

__all__ = ["NUM_CALLS", "play"]

NUM_CALLS = 3

client = openai.AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")


async def play(task: object, rollout: object) -> float:  # noqa: ARG001  # what workers call agents with
    """Make the calls, each with the answer to the one before."""
    messages: list[dict[str, str]] = []
    for turn in range(NUM_CALLS):
        messages.append({"role": "user", "content": f"turn {turn}"})
        answer = await client.chat.completions.create(model="scripted", messages=messages)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
    return 1.0
