"""Estimates of tokens, and cuts to a number of them."""

from hypothesis import given, strategies as st

from envs.tokens import cut_middle, estimate_tokens

TEXTS = st.text() | st.text(alphabet="ab c\n7{") | st.lists(st.text(), max_size=40).map(" ".join)


@given(text=TEXTS, most=st.integers(24, 200))
def test_a_cut_text_fits_and_keeps_its_ends(text, most):
    cut = cut_middle(text * 20, most)

    assert estimate_tokens(cut) <= most
    if cut != text * 20:
        head, _, tail = cut.partition("\n[… ")
        assert text.startswith(head[: len(text)])
        assert "characters cut out" in tail


@given(text=TEXTS)
def test_a_text_that_fits_stays(text):
    assert cut_middle(text, estimate_tokens(text)) == text


@given(text=st.text(), more=st.text())
def test_a_word_is_a_token_at_least(text, more):
    joined = f"{text} {more}"

    assert estimate_tokens(joined) >= len(joined.split())


def test_the_note_counts_what_is_missing():
    text = "word " * 1000

    cut = cut_middle(text, 100)

    head, _, rest = cut.partition("\n[… ")
    number, _, tail = rest.partition(" characters cut out here …]\n")
    assert len(head) + int(number.replace(",", "")) + len(tail) == len(text)
