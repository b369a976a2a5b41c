"""A loop over Anthropic's client, streamed, as people write it."""

import anthropic

TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}

client = anthropic.Anthropic()
messages = [{"role": "user", "content": "what is 40 + 2"}]
while True:
    with client.messages.stream(model="claude-any", max_tokens=100, messages=messages, tools=[TOOL]) as stream:
        answer = stream.get_final_message()
    messages.append({"role": "assistant", "content": answer.content})
    if answer.stop_reason != "tool_use":
        break
    uses = [block for block in answer.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": str(sum(use.input.values()))} for use in uses]
    messages.append({"role": "user", "content": results})
print(answer.content[0].text)
