"""Vocabularies: the bytes of sampled ids are those of the text, whatever the kind of the tokenizer."""

import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from agent_layer.engines import read_fingerprints
from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys, MemoryObjects
from agent_layer.schema.record import Advantages, Logprobs, TokenIds
from agent_layer.schema.step import Action, Step
from agent_layer.schema.training import TrainedTokens
from agent_layer.schema.trajectory import Trajectory
from agent_layer.state import TokenBytes, read_vocabulary
from agent_layer.store import read_step_tokens
from trainer_adapter.loop.vocabulary import keep_vocabulary, make_vocabulary

CORPUS = ["a text to learn from, with words that come again: words, text, again", "naïve façade: 12 €"]
KEYS = Keys("agent-layer")


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def sentence_piece():
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁text", "words", "a", "t"]
    tokenizer = Tokenizer(models.Unigram([(word, -float(number)) for number, word in enumerate(words)], 0, True))  # noqa: FBT003  # byte_fallback has no name there
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


TOKENIZERS = {"byte level": byte_level(), "SentencePiece": sentence_piece()}


def to_bytes(tokenizer):
    return TokenBytes(make_vocabulary(tokenizer.to_str().encode(), "hash"))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])) | st.sampled_from(CORPUS))
def test_the_bytes_of_the_ids_of_a_text_are_the_text(name, text):
    tokenizer = TOKENIZERS[name]
    vocabulary = to_bytes(tokenizer)

    assert b"".join(vocabulary[one] for one in tokenizer.encode(text).ids) == text.encode()


def test_an_id_without_a_token_has_no_bytes_and_an_added_token_is_its_text():
    tokenizer = TOKENIZERS["byte level"]
    vocabulary = to_bytes(tokenizer)

    assert vocabulary[tokenizer.token_to_id("<|end|>")] == b"<|end|>"
    assert [vocabulary[one] for one in (-1, tokenizer.get_vocab_size(), 1 << 30)] == [None] * 3


def test_a_vocabulary_is_stored_once_for_each_tokenizer(tmp_path):
    objects = MemoryObjects()
    TOKENIZERS["byte level"].save(str(tmp_path / "tokenizer.json"))
    tokenizer_hash = read_fingerprints(str(tmp_path)).tokenizer_hash
    keep_vocabulary(tmp_path, KEYS, objects)
    (key,) = objects.list("")
    stored = objects.get(key)
    objects.put(key, stored + b"kept")

    keep_vocabulary(tmp_path, KEYS, objects)

    assert key == f"agent-layer/vocab/{tokenizer_hash}"
    assert objects.get(key) == stored + b"kept"
    assert read_vocabulary(KEYS, objects, tokenizer_hash)[5] == to_bytes(TOKENIZERS["byte level"])[5]
    assert read_vocabulary(KEYS, objects, "another") is None


def test_a_damaged_vocabulary_is_refused(tmp_path):
    objects = MemoryObjects()
    TOKENIZERS["byte level"].save(str(tmp_path / "tokenizer.json"))
    keep_vocabulary(tmp_path, KEYS, objects)
    (key,) = objects.list("")
    stored = bytearray(objects.get(key))
    stored[-1] ^= 1
    objects.put(key, bytes(stored))

    with pytest.raises(CorruptRecordError, match="found other bytes; remove the object"):
        read_vocabulary(KEYS, objects, key.rpartition("/")[2])


def test_each_sampled_token_has_its_bytes_and_what_the_last_update_computed():
    tokenizer = TOKENIZERS["byte level"]
    ids = tokenizer.encode("text again").ids
    action = Action(response_token_ids=TokenIds(ids), logprobs=Logprobs([-0.5] * len(ids)))
    step = Step(trajectory_id="x-0", call_id="b", choice=0, run="r", started_at=1.0, action=action)
    own = {"trajectory_id": "x-0", "run": "r", "policy_version": 0, "calls": [("a", 0, 1), ("b", 0, 2)]}
    trained = [
        TrainedTokens(
            **own,
            batch_id=str(number),
            step=number,
            at=float(number),
            logprobs=Logprobs([-1, -2, -number]),
            advantages=Advantages([1, 2, number]),
            mask=b"\x01\x01\x00",
        )
        for number in (3, 4)
    ]
    trajectory = Trajectory(trajectory_id="x-0", steps=[step], trained=trained)

    tokens = read_step_tokens(trajectory, step, to_bytes(tokenizer))

    assert b"".join(tokens.texts) == b"text again"
    assert (tokens.update, tokens.mask) == (4, b"\x01\x00")
    assert (list(tokens.trained_logprobs), list(tokens.advantages)) == ([-2, -4], [2, 4])
    before = read_step_tokens(Trajectory(trajectory_id="x-0", steps=[step]), step, None)
    assert (before.update, before.texts, before.logprobs) == (None, [None] * len(ids), action.logprobs)
