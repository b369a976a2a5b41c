"""Conversations of episodes: their sizes, and what makes room in them."""

from hypothesis import given, strategies as st

from envs.episode.conversation import DROPPED, Conversation

TURNS = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200), st.integers(1, 400)), min_size=1, max_size=12)


def user(text):
    return {"role": "user", "content": text}


def play(turns):
    """Return a conversation of these turns: words of an observation, words of an answer, what the engine counts."""
    conversation, num_prompt = Conversation([]), 0
    for number, (num_words, num_answered, num_counted) in enumerate(turns):
        conversation.add(user(f"o{number} " + "word " * num_words))
        num_prompt += num_counted
        conversation.add_answer({"role": "assistant", "content": f"a{number}"}, num_prompt, num_answered)
        num_prompt += num_answered
    conversation.add(user("newest"))
    return conversation, num_prompt


def contents(conversation):
    return [one["content"] for one in conversation.prompt.messages]


@given(turns=TURNS)
def test_what_the_engine_counted_is_the_size_and_only_what_is_new_is_estimated(turns):
    conversation, num_prompt = play(turns)

    assert 0 <= conversation.num_tokens - num_prompt <= 40
    assert conversation.prompt.num_tokens == conversation.num_tokens


@given(turns=TURNS, most=st.integers(0, 3000))
def test_observations_are_dropped_oldest_first_and_only_as_many_as_needed(turns, most):
    conversation, _ = play(turns)
    before, size = contents(conversation), conversation.num_tokens

    has_dropped = conversation.drop_observations(most)

    after = contents(conversation)
    dropped = [place for place, text in enumerate(after) if text == DROPPED]
    assert has_dropped == bool(dropped)
    assert (after[0], after[-1], after[1::2]) == (before[0], "newest", before[1::2])
    assert dropped == list(range(2, 2 + 2 * len(dropped), 2))
    assert conversation.num_tokens <= size
    if size <= most:
        assert not has_dropped
    if conversation.num_tokens > most:
        assert len(dropped) == max(0, len(turns) - 1)


@given(turns=TURNS)
def test_a_summary_takes_the_place_of_all_turns_but_the_newest(turns):
    conversation, _ = play(turns)
    before = contents(conversation)

    prompt = conversation.summary_prompt("please summarise")
    if len(turns) == 1:
        assert prompt is None
        return
    questions = [one["content"] for one in prompt.messages]
    conversation.replace_middle("in short", 2)

    assert questions == [*before[:-3], f"{before[-3]}\n\nplease summarise"]
    assert contents(conversation) == [f"{before[0]}\n\nin short", *before[-2:]]
    counted = turns[0][2] + turns[-1][1]  # the head and the newest answer
    assert conversation.num_tokens <= counted + 2 + 80


def test_tool_answers_stay_behind_their_call_and_images_stay_until_dropped():
    conversation = Conversation([{"type": "function", "function": {"name": "look"}}])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    conversation.add({"role": "user", "content": [{"type": "text", "text": "task"}, picture]})
    for number in range(3):
        conversation.add_answer({"role": "assistant", "content": None, "tool_calls": [number]}, None, None)
        conversation.add(
            {"role": "tool", "tool_call_id": str(number), "content": "seen"}, {"role": "user", "content": [picture]}
        )
    assert conversation.num_tokens > 4 * 1500

    conversation.drop_observations(4000)
    roles = [one["role"] for one in conversation.prompt.messages]
    assert roles == ["user", *["assistant", "tool", "user"] * 3]
    assert [one["content"] == [picture] for one in conversation.prompt.messages if one["role"] == "user"][1:] == [
        False,
        False,
        True,
    ]

    conversation.replace_middle("in short", None)
    first, *rest = conversation.prompt.messages
    assert first["content"][-1] == {"type": "text", "text": "in short"}
    assert [one["role"] for one in rest] == ["assistant", "tool", "user"]
