"""A loop over LiteLLM, as people write it."""

import json

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}

messages = [{"role": "user", "content": "what is 40 + 2"}]
while True:
    answer = litellm.completion(model="openai/gpt-any", messages=messages, tools=[TOOL]).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        result = str(sum(json.loads(call.function.arguments).values()))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(answer.content)
