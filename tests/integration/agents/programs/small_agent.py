"""A coding agent in sixty lines: a shell, sub-agents, a title, retries, a summary at the end, resuming, a daemon."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

STATE = Path(os.environ["HOME"]) / "state.json"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("shell", "delegate")
]


def call(messages, tools=None, **headers):
    headers |= {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    body = {"model": os.environ["MODEL"], "messages": messages} | ({"tools": tools} if tools else {})
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(body).encode(), headers
    )
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.1)


def run(function, name):
    arguments = json.loads(function["arguments"])
    if function["name"] == "delegate":
        return work([{"role": "user", "content": arguments["prompt"]}], **{"x-agent-layer-agent": name})
    done = subprocess.run(["sh", "-c", arguments["command"]], capture_output=True, text=True, check=False)
    return done.stdout


def work(messages, *, is_main=False, **headers):
    while True:
        if is_main:
            STATE.write_text(json.dumps(messages))
        answer = call(messages, TOOLS, **headers)
        message = answer["choices"][0]["message"]
        messages.append(
            {name: message[name] for name in ("role", "content", "reasoning", "tool_calls") if message.get(name)}
        )
        if not message.get("tool_calls"):
            return message["content"]
        for one in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": run(one["function"], one["id"])})
        if answer["usage"]["prompt_tokens"] > int(os.environ["CONTEXT"]):
            summary = call([*messages, {"role": "user", "content": "Summarise all of it."}], TOOLS)
            text = summary["choices"][0]["message"]["content"]
            messages[1:] = [{"role": "user", "content": f"So far: {text}"}]


subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if sys.argv[1] == "resume":
    begun = [*json.loads(STATE.read_text()), {"role": "user", "content": sys.argv[2]}]
else:
    begun = [{"role": "user", "content": sys.argv[2]}]
    title = [{"role": "user", "content": f"Write a title of: {sys.argv[2]}"}]
    call(title, **({"x-agent-layer-role": "aux"} if "--untitled" not in sys.argv else {}))
print(work(begun, is_main=True))
