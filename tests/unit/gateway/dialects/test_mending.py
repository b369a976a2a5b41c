"""Half a character in JSON text that comes in pieces is mended as in the whole text, wherever that was cut."""

import json

from hypothesis import given, strategies as st

from agent_layer.gateway.dialects.turns import SurrogateMender
from agent_layer.schema import mend_surrogates

texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("\\u\ud83d\ude00"), max_size=6)


@given(st.lists(texts, max_size=4), st.sampled_from(["", "\\ud83d\\u12", "\\", "\\ud83d\\"]), st.data())
def test_pieces_are_mended_as_the_whole_is(value, rest, data):
    text = json.dumps(value) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    mender = SurrogateMender()

    found = [mender.feed(text[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert "".join([*found, mender.finish()]) == mend_surrogates(text.encode()).decode()
