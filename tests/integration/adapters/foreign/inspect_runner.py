"""inspect_ai's own runner over recorded answers: its ``eval`` with its mock model.

python inspect_runner.py FILE     with {"id", "answers": {index: [message]}}; prints {index: {scorer: number}}
"""

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import eval as run_eval
from inspect_ai._eval.loader import load_tasks
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import value_to_float


def make_output(message):
    calls = message.get("tool_calls")
    if calls:
        function = calls[0]["function"]
        arguments = json.loads(function["arguments"])
        output = ModelOutput.for_tool_call("mockllm", function["name"], arguments, calls[0]["id"])
    else:
        output = ModelOutput.from_content("mockllm", message["content"] or "")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it fetches a vocabulary
    return output


request = json.loads(Path(sys.argv[-1]).read_text())
found = {}
with tempfile.TemporaryDirectory() as folder:
    for index, messages in request["answers"].items():
        left = [make_output(message) for message in messages]
        (task,) = load_tasks([request["id"]], {})
        model = get_model("mockllm/model", custom_outputs=left, memoize=False)
        limit = (int(index), int(index) + 1)
        (log,) = run_eval(task, model=model, limit=limit, log_dir=folder, log_format="json", display="none")
        assert log.status == "success", log.error
        found[index] = {name: value_to_float()(one.value) for name, one in log.samples[0].scores.items()}
sys.stdout.write(json.dumps(found) + "\n")
