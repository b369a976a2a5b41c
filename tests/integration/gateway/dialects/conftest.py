"""The official clients, each in every style: questions, tools, whole and streamed answers."""

import json

import anthropic
import openai
import pytest

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
SYSTEM = "be brief"


class Completions:
    """OpenAI's chat completions."""

    def __init__(self, client, is_streamed):
        self._client, self._is_streamed = client, is_streamed
        self._messages = [{"role": "system", "content": SYSTEM}]

    async def ask(self, text, **options):
        self._messages.append({"role": "user", "content": text})
        return await self.go_on(**options)

    async def give(self, results, **options):
        self._messages += [{"role": "tool", "tool_call_id": one, "content": text} for one, text in results.items()]
        return await self.go_on(**options)

    async def go_on(self, **options):
        """Return (text, {call id: arguments})."""
        function = {"name": "add", "description": "a sum", "parameters": SCHEMA, "strict": True}
        fields = {"model": "any", "messages": self._messages, "tools": [{"type": "function", "function": function}]}
        message = await self._answer({**fields, **options})
        added = {"parsed": True, "tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
        self._messages.append(message.model_dump(exclude_none=True, exclude=added))
        calls = {call.id: json.loads(call.function.arguments) for call in message.tool_calls or ()}
        return message.content, calls

    async def _answer(self, fields):
        if not self._is_streamed:
            return (await self._client.chat.completions.create(**fields)).choices[0].message
        async with self._client.chat.completions.stream(**fields) as stream:
            return (await stream.get_final_completion()).choices[0].message


class Responses(Completions):
    """OpenAI's responses, that send the whole conversation."""

    def __init__(self, client, is_streamed):
        super().__init__(client, is_streamed)
        self._messages = []

    async def give(self, results, **options):
        outputs = results.items()
        self._messages += [{"type": "function_call_output", "call_id": one, "output": text} for one, text in outputs]
        return await self.go_on(**options)

    async def go_on(self, **options):
        tool = {"type": "function", "name": "add", "description": "a sum", "parameters": SCHEMA}
        fields = {"model": "any", "input": self._messages, "instructions": SYSTEM, "tools": [tool]}
        response = await self._answer({**fields, **options})
        self._keep(response)
        calls = {item.call_id: json.loads(item.arguments) for item in response.output if item.type == "function_call"}
        return response.output_text or None, calls

    def _keep(self, response):
        shown = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        self._messages += shown

    async def _answer(self, fields):
        if not self._is_streamed:
            return await self._client.responses.create(**fields)
        async with self._client.responses.stream(**fields) as stream:
            return await stream.get_final_response()


class LinkedResponses(Responses):
    """OpenAI's responses, that name the one before."""

    _before = None

    async def go_on(self, **options):
        return await super().go_on(previous_response_id=self._before or openai.omit, **options)

    def _keep(self, response):
        self._before = response.id
        self._messages = []


class ReferringResponses(Responses):
    """OpenAI's responses as the AI SDK sends them: earlier items are named, but calls are parsed and written again."""

    def _keep(self, response):
        for item in response.output:
            if item.type == "function_call":
                rewritten = json.dumps(
                    json.loads(item.arguments, parse_float=lambda text: int(float(text))), separators=(",", ":")
                )
                call = {"type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": rewritten}
                self._messages.append(call)
            else:
                self._messages.append({"type": "item_reference", "id": item.id})


class Messages:
    """Anthropic's messages."""

    def __init__(self, client, is_streamed):
        self._client, self._is_streamed = client, is_streamed
        self._messages = []

    async def ask(self, text, **options):
        self._messages.append({"role": "user", "content": text})
        return await self.go_on(**options)

    async def give(self, results, **options):
        blocks = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results.items()]
        self._messages.append({"role": "user", "content": blocks})
        return await self.go_on(**options)

    async def go_on(self, **options):
        tool = {"name": "add", "description": "a sum", "input_schema": SCHEMA}
        fields = {"model": "any", "messages": self._messages, "max_tokens": 99, "system": SYSTEM, "tools": [tool]}
        message = await self._answer({**fields, **options})
        self._messages.append({"role": "assistant", "content": message.content})
        texts = [block.text for block in message.content if block.type == "text"]
        return "".join(texts) or None, {block.id: block.input for block in message.content if block.type == "tool_use"}

    async def _answer(self, fields):
        if not self._is_streamed:
            return await self._client.messages.create(**fields)
        async with self._client.messages.stream(**fields) as stream:
            return await stream.get_final_message()


class Google:
    """Google's API. Its client is handed over as the module's clients are."""

    def __init__(self, client, is_streamed):
        self._client, self._is_streamed = client, is_streamed
        self._contents = []

    async def ask(self, text, **options):
        self._contents.append({"role": "user", "parts": [{"text": text}]})
        return await self.go_on(**options)

    async def give(self, results, **options):
        responses = [{"id": one, "name": "add", "response": {"output": text}} for one, text in results.items()]
        self._contents.append({"role": "user", "parts": [{"function_response": one} for one in responses]})
        return await self.go_on(**options)

    async def go_on(self, **options):
        tool = {"function_declarations": [{"name": "add", "description": "a sum", "parameters_json_schema": SCHEMA}]}
        config = {"system_instruction": SYSTEM, "tools": [tool], **options}
        contents = [one async for one in self._answer({"model": "any", "contents": self._contents, "config": config})]
        self._contents += contents
        parts = [part for content in contents for part in content.parts]
        text = "".join(part.text for part in parts if part.text)
        return text or None, {part.function_call.id: part.function_call.args for part in parts if part.function_call}

    async def _answer(self, fields):
        if not self._is_streamed:
            yield (await self._client.aio.models.generate_content(**fields)).candidates[0].content
            return
        async for piece in await self._client.aio.models.generate_content_stream(**fields):
            yield piece.candidates[0].content


TALKS = {
    "completions": Completions,
    "responses": Responses,
    "linked responses": LinkedResponses,
    "referring responses": ReferringResponses,
    "messages": Messages,
    "google": Google,
}


@pytest.fixture
async def clients(gateway):
    """``await clients(opened)``: the official (openai, anthropic) clients of a rollout; they try once."""
    made = []

    async def connect(opened, **options):
        options = {"api_key": opened["api_key"], "max_retries": 0, **options}
        address = f"{gateway.url}/r/{opened['trajectory_id']}"
        made.append(openai.AsyncOpenAI(base_url=f"{address}/v1", **options))
        made.append(anthropic.AsyncAnthropic(base_url=address, **options))
        return made[-2:]

    yield connect
    for client in made:
        await client.close()


@pytest.fixture
async def google(gateway):
    """``google(opened, base, **options)``: Google's client of a rollout; it tries once."""
    from google import genai  # noqa: PLC0415  # it takes seconds, which collecting must not

    made = []

    def connect(opened, base="", **options):
        address = f"{gateway.url}/r/{opened['trajectory_id']}{base}"
        made.append(genai.Client(api_key=opened["api_key"], http_options={"base_url": address, **options}))
        return made[-1]

    yield connect
    for client in made:
        client.close()
        await client.aio.aclose()


@pytest.fixture
async def talks(clients, google):
    """``await talks(opened, dialect, is_streamed)``: a conversation."""

    async def begin(opened, dialect, *, is_streamed=False):
        if dialect == "google":
            return Google(google(opened), is_streamed)
        of_openai, of_anthropic = await clients(opened)
        return TALKS[dialect](of_anthropic if dialect == "messages" else of_openai, is_streamed)

    return begin
