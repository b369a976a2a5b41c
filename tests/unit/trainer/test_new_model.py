"""``new model`` writes a model that others can read, or names what is in its way."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

TALK = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import AutoTokenizer  # noqa: PLC0415  # takes seconds

    from trainer_adapter.tiny_model import write_chat_model  # noqa: PLC0415  # torch takes seconds

    directory = tmp_path_factory.mktemp("chat") / "model"
    write_chat_model(directory)
    return AutoTokenizer.from_pretrained(directory)


def test_an_empty_directory_stays_the_same_one(tmp_path, agent_layer, monkeypatch):
    """It may be where the shell is, or a mount, and a new one in its place would leave both empty."""
    monkeypatch.chdir(tmp_path)

    status, _, errors = agent_layer("new", "model", ".")

    assert (status, errors) == (0, "")
    assert Path("config.json").is_file()
    assert not list(Path().glob(".*")), "no scratch is left"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(tmp_path, agent_layer, exists):
    target = tmp_path / "large-disk"
    if exists:
        target.mkdir()
    (tmp_path / "link").symlink_to(target)

    status, _, errors = agent_layer("new", "model", tmp_path / "link")

    assert (status, errors) == (0, "")
    assert (target / "config.json").is_file()


def test_equal_seeds_write_equal_bytes(tmp_path, agent_layer):
    for name, seed in (("one", 7), ("same", 7), ("other", 8)):
        agent_layer("new", "model", tmp_path / name, "--seed", seed)

    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "other")}
    assert weights["one"] == weights["same"] != weights["other"]


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_out_of_range_is_refused(tmp_path, agent_layer, seed):
    status, _, errors = agent_layer("new", "model", tmp_path / "model", "--seed", seed)

    assert status == 2
    assert "--seed" in errors
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_what_is_interrupted_leaves_nothing(tmp_path, monkeypatch, is_new):
    from trainer_adapter import tiny_model  # noqa: PLC0415  # torch takes seconds

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tiny_model.AutoTokenizer, "from_pretrained", interrupt)
    if not is_new:
        (tmp_path / "model").mkdir()

    with pytest.raises(KeyboardInterrupt):
        tiny_model.write_chat_model(tmp_path / "model")

    assert [path.name for path in tmp_path.rglob("*")] == ([] if is_new else ["model"])


@pytest.mark.parametrize("thought", ["hmm\n", ""])
@pytest.mark.parametrize("content", ["5", "", "\n\n5 "])
def test_a_turn_with_reasoning_reads_as_it_was_sampled(tokenizer, thought, content):
    request = tokenizer.apply_chat_template([TALK], tokenize=False, add_generation_prompt=True, enable_thinking=True)
    answer = {"role": "assistant", "content": content, "reasoning": thought, "reasoning_content": thought}

    later = tokenizer.apply_chat_template([TALK, answer, TALK], tokenize=False)

    assert later.startswith(f"{request}{thought}</think>{content}<|im_end|>")


@pytest.mark.parametrize("fields", [{}, {"reasoning": None}, {"reasoning_content": None}])
def test_a_turn_without_reasoning_has_no_marks_of_it(tokenizer, fields):
    request = tokenizer.apply_chat_template([TALK], tokenize=False, add_generation_prompt=True)

    later = tokenizer.apply_chat_template([TALK, {"role": "assistant", "content": "5", **fields}], tokenize=False)

    assert later.startswith(f"{request}5<|im_end|>")
