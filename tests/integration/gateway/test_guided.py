"""Agents that force a form, a tool, an order of messages or a way of thinking run as they are, and are trained."""

import json

import pytest

from agent_layer.errors import BadInputError
from trainer_adapter.data import samples_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WORDS = json.dumps(SCHEMA, separators=(",", ":"))
HELLO = [{"role": "user", "content": "hi"}]
AUX = {"x-agent-layer-role": "aux"}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
TOOLS = {
    "chat": [{"type": "function", "function": FUNCTION}],
    "responses": [{"type": "function", **FUNCTION}],
    "messages": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
FLAT = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}


def with_tools(dialect, choice, **more):
    return {"tools": TOOLS[dialect], "tool_choice": choice, **more}


GUIDED = [
    ("chat", {"response_format": FORMAT}, "response_format", WORDS),
    ("chat", {"response_format": {"type": "json_object"}}, "response_format", "one JSON object"),
    ("chat", {"response_format": {"type": "structural_tag", "format": {"x": 1}}}, "response_format", '{"x":1}'),
    ("chat", {"guided_json": SCHEMA}, "guided_json", WORDS),
    ("chat", {"guided_choice": ["x", "y"]}, "guided_choice", '["x","y"]'),
    ("chat", {"guided_regex": "x+", "guided_decoding_backend": "b"}, "guided_regex", "x+"),
    ("chat", {"structured_outputs": {"json": SCHEMA}}, "structured_outputs", WORDS),
    ("chat", {"regex": "x+"}, "regex", "x+"),
    ("chat", with_tools("chat", "required"), "tool_choice", None),
    ("chat", with_tools("chat", {"type": "function", "function": {"name": "f"}}), "tool_choice", None),
    ("chat", with_tools("chat", {"type": "allowed_tools", "allowed_tools": {}}), "tool_choice", None),
    ("responses", {"text": {"format": FLAT}}, "response_format", WORDS),
    ("responses", {"text": {"format": {"type": "json_object"}}}, "response_format", "one JSON object"),
    ("responses", with_tools("responses", "required"), "tool_choice", None),
    ("responses", with_tools("responses", {"type": "function", "name": "f"}), "tool_choice", None),
    ("responses", {"structured_outputs": {"regex": "x+"}}, "structured_outputs", "x+"),
    ("messages", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "response_format", WORDS),
    ("messages", {"output_format": {"type": "json_schema", "schema": SCHEMA}}, "response_format", WORDS),
    ("messages", with_tools("messages", {"type": "any"}), "tool_choice", None),
    ("messages", with_tools("messages", {"type": "tool", "name": "f"}), "tool_choice", None),
    ("messages", {"tools": [{**TOOLS["messages"][0], "strict": True}]}, "tools.strict", None),
]
STREAMED = pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
GRAMMARS = {"response_format", "structured_outputs", "guided_json", "guided_choice", "guided_regex", "regex"}


async def ask(gateway, opened, dialect, history, *, is_streamed=False, headers=None, **fields):
    """Ask in any dialect; return the status and the body as text."""
    body = {"model": "m", "input" if dialect == "responses" else "messages": history, "stream": is_streamed, **fields}
    body |= {"max_tokens": 9} if dialect == "messages" else {}
    headers = {"Authorization": f"Bearer {opened['api_key']}", **(headers or {})}
    url = f"{gateway.url}/r/{opened['trajectory_id']}{PATHS[dialect]}"
    async with gateway.session.post(url, json=body, headers=headers) as reply:
        return reply.status, await reply.text()


async def converse(gateway, opened, dialect, history, turns=3, **fields):
    """Ask, with what was answered, again; return the steps; each continues the one before."""
    for turn in range(turns):
        status, text = await ask(gateway, opened, dialect, history, **fields)
        assert status == 200, text
        assert "fine" in text
        history = [*history, {"role": "assistant", "content": "fine"}, {"role": "user", "content": f"turn {turn}"}]
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.prompt.parent_call for step in steps[1:]] == [step.call_id for step in steps[:-1]]
    return steps


def assert_all_is_trained(gateway, opened):
    """One row has every token that the policy sampled, as the engine sampled it."""
    found = samples_of(gateway.log.trajectory(opened["trajectory_id"]))
    (sample,) = found.samples
    last = gateway.engine.calls[-1]
    assert [*sample.prompt_ids, *sample.response_ids] == last.prompt_token_ids + last.token_ids[0]
    assert (sum(sample.loss_mask), found.drops) == (sum(len(call.token_ids[0]) for call in gateway.engine.calls), [])


@pytest.fixture(autouse=True)
def _script(engine):
    engine.script = lambda _: "fine"


@STREAMED
@pytest.mark.parametrize("dialect", PATHS)
async def test_a_forced_answer_is_free_and_trained(gateway, dialect, is_streamed):
    for _, fields, name, words in (one for one in GUIDED if one[0] == dialect):
        opened = await gateway.open(group_id="g")
        gateway.engine.calls.clear()

        steps = await converse(gateway, opened, dialect, HELLO, is_streamed=is_streamed, **fields)

        for step, sent in zip(steps, (call.body for call in gateway.engine.calls), strict=True):
            assert step.findings == [f"neutralised:{name}"]
            assert not GRAMMARS & sent.keys()
            assert sent.get("tool_choice") == ("auto" if name == "tool_choice" else None)
            assert words is None or words in sent["messages"][0]["content"]
            assert name == "tools.strict" or step.sampling_asked  # what was wanted stays on record
        assert_all_is_trained(gateway, opened)
        _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {})
        # a strict tool need not be called
        assert closed.get("policy_fault") == (None if name == "tools.strict" else "missed_form")


FORCED = {"response_format": {"type": "json_object"}}
LATER = {
    "nothing": ("fine", {}, "missed_form"),
    "an answer in its form": ("{}", FORCED, None),
    "an answer of any form": ("fine", {}, None),
    "an engine that fails": ({"content": "x", "finish_reason": "error"}, {}, None),
    "an engine that fails at a side call": ({"content": "x", "finish_reason": "error"}, {"headers": AUX}, None),
    "a side call": ("fine", {"headers": AUX}, "missed_form"),
}


@pytest.mark.parametrize("later", LATER)
async def test_a_missed_form_is_a_fault_until_something_else_may_have_failed_the_agent(gateway, later):
    (answer, fields, fault), opened = LATER[later], await gateway.open(group_id="g")
    await gateway.chat(opened, "one", **FORCED)
    gateway.engine.script = lambda _: answer
    if later != "nothing":
        await gateway.chat(opened, "two", **fields)

    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {})

    assert closed.get("policy_fault") == fault


@STREAMED
@pytest.mark.parametrize("dialect", PATHS)
async def test_a_setting_refuses_what_is_forced(settings, run_gateway, dialect, is_streamed):
    fields = {"api_key": "operator-key", "unreproducible_sampling": "refuse_grammars"}
    async with run_gateway(settings.model_copy(update=fields)) as gateway:
        opened = await gateway.open(group_id="g")
        for _, guided, name, _ in (one for one in GUIDED if one[0] == dialect and one[2] != "tools.strict"):
            status, text = await ask(gateway, opened, dialect, HELLO, is_streamed=is_streamed, **guided)
            assert (status, "unreproducible_sampling" in text, name in text) == (400, True, True)
        assert gateway.engine.calls == []


@pytest.mark.parametrize(
    ("about", "headers"), [({"group_id": "g"}, AUX), ({"group_id": "g", "split": "eval"}, {}), ({}, {})]
)
async def test_judges_evaluations_and_single_rollouts_are_guided_as_they_ask(gateway, about, headers):
    opened = await gateway.open(**about)

    await ask(gateway, opened, "chat", HELLO, headers=headers, response_format=FORMAT)

    (call,) = gateway.engine.calls
    assert (call.body["response_format"], call.body["messages"]) == (FORMAT, HELLO)
    assert gateway.step(opened).findings == ([] if "group_id" in about else ["unreproducible:response_format"])


async def test_one_guided_call_leaves_the_others_of_its_rollout_trained(gateway):
    opened = await gateway.open()
    await ask(gateway, opened, "chat", [{"role": "user", "content": "title?"}], response_format=FORMAT)
    await converse(gateway, opened, "chat", HELLO, turns=0)
    await ask(gateway, opened, "chat", HELLO)

    found = samples_of(gateway.log.trajectory(opened["trajectory_id"]))

    guided, free = (call.token_ids[0] for call in gateway.engine.calls)
    assert [list(sample.response_ids) for sample in found.samples] == [free]
    assert [(drop.reason, drop.num_tokens) for drop in found.drops] == [("unreproducible:response_format", len(guided))]


async def test_a_tasks_choice_of_tools_is_sent_with_tools_only(gateway):
    opened = await gateway.open(group_id="g", sampling={"tool_choice": "required", "parallel_tool_calls": False})

    for fields in ({}, {"tools": []}, {"tools": TOOLS["chat"]}):
        assert (await ask(gateway, opened, "chat", HELLO, **fields))[0] == 200

    names = ("tools", "tool_choice", "parallel_tool_calls")
    assert [[call.body.get(name) for name in names] for call in gateway.engine.calls] == [
        [None, None, None],
        [None, None, None],
        [TOOLS["chat"], "auto", False],
    ]
    assert gateway.step(opened).findings == ["neutralised:tool_choice"]


SYSTEMS = [
    ("chat", {}, ["system", "system", "user"], 1),
    ("chat", {}, ["user", "system"], 0),
    ("chat", {}, ["system", "user", "developer", "user"], 1),
    ("responses", {"instructions": "rule"}, ["developer", "user"], 1),
    ("responses", {"instructions": "rule"}, ["user", "system"], 1),
    ("messages", {"system": "rule"}, ["system", "user"], 1),
    ("messages", {"system": [{"type": "text", "text": "rule"}]}, ["user", "system"], 1),
    ("messages", {}, ["system", "user"], 1),
]


def take_system_first(prompt):
    """Refuse as templates do."""
    if any(message["role"] in ("system", "developer") for message in prompt.messages[1:]):
        raise BadInputError("System message must be at the beginning.")
    return "fine"


@STREAMED
async def test_a_template_that_takes_system_first_takes_every_order(gateway, is_streamed):
    gateway.engine.script = take_system_first
    for dialect, fields, roles, num_system in SYSTEMS:
        opened = await gateway.open(group_id="g")
        gateway.engine.calls.clear()
        history = [{"role": role, "content": f"word {place}"} for place, role in enumerate(roles)]

        steps = await converse(gateway, opened, dialect, history, is_streamed=is_streamed, **fields)

        is_moved = roles[1:] != ["user"] or bool(fields)
        sent = gateway.engine.calls[-1].body["messages"]
        assert sum(message["role"] == "system" for message in sent) == num_system
        assert all(step.findings == (["rearranged:system"] if is_moved else []) for step in steps)
        assert all(f"word {place}" in json.dumps(sent) for place in range(len(roles)))
        assert_all_is_trained(gateway, opened)


async def test_a_reminder_in_a_later_turn_breaks_no_prefix(gateway):
    gateway.engine.script = take_system_first
    opened = await gateway.open(group_id="g")
    history = [{"role": "system", "content": "rule"}, {"role": "user", "content": "hi"}]
    for turn in range(3):
        assert (await ask(gateway, opened, "chat", history))[0] == 200
        history += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "more"}]
        history += [{"role": "system", "content": f"reminder {turn}"}]

    assert_all_is_trained(gateway, opened)
    assert [step.findings for step in gateway.log.trajectory(opened["trajectory_id"]).steps] == [
        [],
        ["rearranged:system"],
        ["rearranged:system"],
    ]


async def test_a_remembered_conversation_keeps_what_its_client_said(gateway):
    gateway.engine.script = take_system_first
    opened = await gateway.open(group_id="g")
    before = {}
    for turn in range(3):
        history = [{"role": "developer", "content": f"note {turn}"}, {"role": "user", "content": "hi"}]
        fields = {"instructions": "rule", "text": {"format": FLAT}, **before}
        _, text = await ask(gateway, opened, "responses", history, **fields)
        before = {"previous_response_id": json.loads(text)["id"]}

    last = gateway.engine.calls[-1].body["messages"]
    assert [message["role"] for message in last] == ["system", *["user", "assistant"] * 2, "user"]
    assert (last[0]["content"].startswith("rule\n\nnote 0"), last[0]["content"].count(WORDS)) == (True, 1)
    assert [message["content"] for message in last[1:]] == ["hi", "fine", "note 1\n\nhi", "fine", "note 2\n\nhi"]
    assert_all_is_trained(gateway, opened)


PRIVATE = {
    "kv_transfer_params": {"do_remote_decode": True},
    "ec_transfer_params": {"x": 1},
    "request_id": "r",
    "priority": 3,
    "cache_salt": "s",
    "mm_processor_kwargs": {"x": 1},
    "media_io_kwargs": {"x": 1},
    "chat_template": "{{ messages }}",
    "logits_processors": ["os.system"],
    "custom_logit_processor": "x",
    "vllm_xargs": {"x": 1},
    "lora_path": "x",
}
UNKNOWN = {"sorcery": 1, "functions": [{"name": "f"}], "function_call": {"name": "f"}}
HARMLESS = {
    "user": "u",
    "session_id": "s",
    "metadata": {"user_id": "x"},
    "service_tier": "auto",
    "client_metadata": {"x": "y"},
}


@pytest.mark.parametrize("headers", [{}, AUX], ids=["policy", "aux"])
@pytest.mark.parametrize("dialect", PATHS)
async def test_what_is_the_operators_business_stays_in_the_gateway(gateway, dialect, headers):
    opened = await gateway.open(sampling={"custom_logit_processor": "the task's"} if not headers else {})

    for name, value in (PRIVATE | UNKNOWN).items():
        assert (await ask(gateway, opened, dialect, HELLO, headers=headers, **{name: value}))[0] == 200
        expected = "the task's" if name == "custom_logit_processor" and not headers else None
        assert gateway.engine.calls[-1].body.get(name) == expected
        assert gateway.step(opened).findings == [f"not_applied:{name}"]
        assert (gateway.step(opened).sampling_applied or {}).get(name) == expected
    await ask(gateway, opened, dialect, HELLO, headers=headers, **HARMLESS)
    assert not HARMLESS.keys() & gateway.engine.calls[-1].body.keys()
    assert gateway.step(opened).findings == []


THINKING = [
    ("chat", {"thinking_token_budget": 2000}, "thinking_token_budget"),
    ("messages", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking_token_budget"),
    ("responses", {"thinking_token_budget": 2000}, "thinking_token_budget"),
    ("chat", {"reasoning_effort": "xhigh"}, "reasoning_effort"),
    ("messages", {"output_config": {"effort": "max"}}, "reasoning_effort"),
    ("messages", {"thinking": {"type": "disabled"}}, "reasoning_effort"),
    ("responses", {"reasoning": {"effort": "minimal"}}, "reasoning_effort"),
]


def think_as_always(prompt):
    if (effort := prompt.body.get("reasoning_effort")) is not None:
        raise BadInputError(f"Harmony does not support reasoning_effort={effort!r}")
    return "fine"


@STREAMED
@pytest.mark.parametrize("about", [{"group_id": "g"}, {}, {"split": "eval"}], ids=["group", "single", "eval"])
async def test_thinking_that_an_engine_cannot_be_asked_for_is_left_out(gateway, about, is_streamed):
    gateway.engine.parses_reasoning, gateway.engine.script = False, think_as_always
    for dialect, fields, name in THINKING:
        opened = await gateway.open(**about)

        await converse(gateway, opened, dialect, HELLO, turns=1, is_streamed=is_streamed, **fields)

        is_neutral = name == "thinking_token_budget" and "group_id" in about
        assert gateway.step(opened).findings == [f"{'neutralised' if is_neutral else 'not_applied'}:{name}"]
        assert gateway.step(opened).sampling_applied.get(name) is None
        assert gateway.engine.calls[-1].body.get(name) is None


async def test_an_engine_that_can_is_told_how_to_think(gateway):
    opened = await gateway.open(split="eval")

    await ask(
        gateway,
        opened,
        "messages",
        HELLO,
        thinking={"type": "enabled", "budget_tokens": 2000},
        output_config={"effort": "high"},
    )

    sent = gateway.engine.calls[-1].body
    assert (sent["thinking_token_budget"], sent["reasoning_effort"]) == (2000, "high")
    assert gateway.step(opened).findings == []


async def test_reasoning_under_its_old_name_continues_the_prefix(gateway):
    gateway.engine.script = lambda _: {"reasoning": "hm so", "content": "fine"}
    opened = await gateway.open(group_id="g")
    sent_back = {"role": "assistant", "content": "fine", "reasoning_content": "hm so"}

    await ask(gateway, opened, "chat", HELLO)
    await ask(gateway, opened, "chat", [*HELLO, sent_back, *HELLO])

    assert_all_is_trained(gateway, opened)
