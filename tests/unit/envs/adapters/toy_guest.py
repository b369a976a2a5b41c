"""A guest program of a toy package, for tests of what all adapters share."""

import asyncio
import contextlib
import os
import random
import sys
import time
from pathlib import Path

from guest_protocol import AttemptEnded, RefusalError, serve

WORLD = random.Random()
"""Not the same in two processes."""


async def ask_back(request, ask):
    """Ask for each number, side by side with other requests."""
    return {"found": [(await ask("policy", {"say": number}))["said"] for number in request["numbers"]]}


async def refuse(request, _ask):
    raise RefusalError(f"no {request['what']} here")


async def fail(_request, _ask):
    print("noise on stdout")
    raise ValueError("broken rubric")


async def leave(_request, _ask):
    raise SystemExit(3)


async def overflow(_request, _ask):
    return {"reward": float("nan")}


async def garble(_request, _ask):
    for descriptor in range(3, 10):  # wherever the protocol writes
        with contextlib.suppress(OSError):
            os.write(descriptor, b"Traceback: none\n")
    return {}


async def die(_request, _ask):
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os._exit(9)


async def hang(request, _ask):
    Path(request["begun"]).touch()
    time.sleep(3600)


async def wait(request, _ask):
    Path(request["begun"]).touch()
    await asyncio.sleep(3600)


async def see(_request, _ask):
    return {"variables": sorted(os.environ), "path": sys.path}


def question(index):
    return f"{index} + {index % 7}"


async def list_tasks(request, _ask):
    num = request["taskset"].get("num", 40)
    order = list(range(num))
    random.Random(request["seed"]).shuffle(order) if request["seed"] else None
    tasks = [
        {
            "index": index,
            "key": f"key {index}",
            "messages": [{"role": "user", "content": question(index)}],
            "grading": {"answer": str(index + index % 7)},
        }
        for index in order[request["start"] : request["start"] + request["count"]]
    ]
    return {"tasks": tasks, "version": "toy-1"}


async def run(request, ask):
    """Two turns: an answer, and whether it is sure; the second question drifts where the set says so."""
    index, options = request["index"], request["taskset"]
    if request["key"] != f"key {index}":
        raise RefusalError(f"toy task {index}: it is not what it was when it was listed")
    messages = [{"role": "user", "content": question(index)}]
    replies, stop = [], None
    for turn in range(options.get("turns", 1)):
        try:
            answer = await ask("policy", {"messages": list(messages)})
        except AttemptEnded:
            stop = "ended"
            break
        replies.append(answer["choices"][0]["message"]["content"] or "")
        noise = WORLD.random() if options.get("drifts") else ""
        messages += [
            {"role": "assistant", "content": replies[-1]},
            {"role": "user", "content": f"sure? {turn} {noise}"},
        ]
    if not request["is_scored"]:
        return {"stop": stop}
    if options.get("judged"):
        judged = await ask("judge", {"messages": [{"role": "user", "content": replies[0]}], "temperature": 0})
        return {"reward": float(judged["choices"][0]["message"]["content"]), "stop": stop}
    right = float(bool(replies) and replies[0].strip().endswith(str(index + index % 7)))
    parts = {"right": {"score": right, "weight": 1.0}}
    return {"reward": right, "parts": parts, "metrics": {"turns": len(replies)}, "stop": stop}


if __name__ == "__main__":
    handlers = {
        "back": ask_back,
        "refuse": refuse,
        "fail": fail,
        "leave": leave,
        "die": die,
        "overflow": overflow,
        "garble": garble,
        "hang": hang,
        "wait": wait,
    }
    serve({**handlers, "see": see, "list": list_tasks, "run": run}, "toy 1")
