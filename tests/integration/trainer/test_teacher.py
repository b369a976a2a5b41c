"""The teacher's server: checked at the start, asked again while it does not answer, given up after its patience."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from agent_layer.engines import TeacherEngine
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.infra import free_port
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema.record import TokenIds
from trainer_adapter.algorithms import AlgorithmConfig, DistillConfig
from trainer_adapter.algorithms.options import TeacherConfig
from trainer_adapter.config import SourceConfig, TrainConfig
from trainer_adapter.teacher import Teacher, open_teacher
from trainer_adapter.teacher.targets import Silence

from ...teaching import ScriptedTeacher, judge

WORDS = ["<unk>", "guess", "higher", "lower", "yes", "no", "one", "two"]


def write_tokenizer(directory, words=WORDS):
    directory.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def student(tmp_path):
    return write_tokenizer(tmp_path / "student")


@pytest.fixture
def server(student):
    with serve_in_thread(ScriptedTeacher(student)) as server:
        yield server


@pytest.fixture
def make_config(student):
    """``make_config(url, …)``: a run of the student with this teacher."""

    def make_config(url, **fields):
        distill = DistillConfig(teacher=TeacherConfig(**{"url": f"{url}/v1", "model": "teacher"} | fields))
        tasks = [SourceConfig(path=student / "none.jsonl")]
        return TrainConfig(model=student, tasks=tasks, steps=1, algorithm=AlgorithmConfig(distill=distill))

    return make_config


def test_each_token_behind_the_first_has_its_log_probability(server, settings, make_config):
    teacher = open_teacher(make_config(server.url), settings)

    (first, second) = teacher.score([TokenIds([3, 1, 4]), TokenIds([1, 5])])

    assert list(first) == pytest.approx([judge([3], 1), judge([3, 1], 4)])
    assert list(second) == pytest.approx([judge([1], 5)])


def test_a_server_that_is_busy_for_a_while_is_asked_again(server, settings, make_config):
    teacher = open_teacher(make_config(server.url, concurrency=1), settings)
    busy = [429, 503, 500]
    server.refuses = lambda _: busy.pop() if busy else None

    (found,) = teacher.score([TokenIds([1, 2])])

    assert list(found) == pytest.approx([judge([1], 2)])
    assert busy == []


def test_a_row_that_the_server_refuses_is_not_asked_about_again_and_others_are_answered(server, settings, make_config):
    teacher = open_teacher(make_config(server.url), settings)
    server.requests.clear()
    server.refuses = lambda row: 400 if row == [1, 2, 3] else None

    refused, answered = teacher.score([TokenIds([1, 2, 3]), TokenIds([1, 2])])

    assert isinstance(refused, Silence)
    assert refused.kind == "no_teacher"
    assert "answered 400" in refused.reason
    assert "not this row" in refused.reason
    assert list(answered) == pytest.approx([judge([1], 2)])
    assert server.requests.count([1, 2, 3]) == 1


def test_rows_stay_without_an_answer_once_the_patience_is_over():
    gone = TeacherEngine(f"http://127.0.0.1:{free_port()}", "teacher")
    teacher = Teacher(gone, concurrency=2, patience_seconds=0.3)

    found = teacher.score([TokenIds([1, 2])] * 4)

    assert all(isinstance(one, Silence) and one.kind == "no_teacher" for one in found)
    assert "no answer for" in found[0].reason


def test_a_stop_ends_the_wait():
    gone = TeacherEngine(f"http://127.0.0.1:{free_port()}", "teacher")
    teacher = Teacher(gone, concurrency=1, patience_seconds=3600)

    (found,) = teacher.score([TokenIds([1, 2])], stop=lambda: True)

    assert isinstance(found, Silence)


def test_a_server_that_does_not_answer_is_named_at_the_start(settings, make_config):
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(UnreachableError, match=url):
        open_teacher(make_config(url), settings)


def test_a_server_without_the_model_is_refused_with_those_that_it_has(server, settings, make_config):
    with pytest.raises(BadInputError, match="expected the model 'large', found teacher"):
        open_teacher(make_config(server.url, model="large"), settings)


def test_a_key_is_sent_and_asked_for_by_its_setting(server, settings, make_config):
    server.key = "secret"
    with pytest.raises(BadInputError, match=r"asks for a key.*AGENT_LAYER_TEACHER_KEY"):
        open_teacher(make_config(server.url), settings)

    known = settings.model_copy(update={"teacher_key": "secret"})
    (found,) = open_teacher(make_config(server.url), known).score([TokenIds([1, 2])])

    assert list(found) == pytest.approx([judge([1], 2)])
    assert "secret" in known.secrets


@pytest.mark.parametrize(
    "words", [[*WORDS[:4], "no", "yes", *WORDS[6:]], WORDS[:-1]], ids=["two words swapped", "one word fewer"]
)
def test_another_vocabulary_is_refused_with_the_first_difference(tmp_path, settings, words, make_config):
    with (
        serve_in_thread(ScriptedTeacher(write_tokenizer(tmp_path / "other", words))) as server,
        pytest.raises(BadInputError, match=r"expected the vocabulary of .*its tokens 0 to 7: .* here, .* there"),
    ):
        open_teacher(make_config(server.url), settings)


def test_a_larger_vocabulary_is_accepted(tmp_path, settings, make_config):
    with serve_in_thread(ScriptedTeacher(write_tokenizer(tmp_path / "other", [*WORDS, "more"]))) as server:
        open_teacher(make_config(server.url), settings)


def test_a_model_without_a_tokenizer_cannot_be_compared(server, student, settings, make_config):
    (student / "tokenizer.json").unlink()

    with pytest.raises(BadInputError, match=r"expected tokenizer\.json"):
        open_teacher(make_config(server.url), settings)


def test_a_server_without_log_probabilities_of_prompts_is_named(server, settings, monkeypatch, make_config):
    monkeypatch.setattr(server, "judge", lambda *_: None)  # no number

    with pytest.raises(EngineError, match="expected vLLM's answer"):
        open_teacher(make_config(server.url), settings)
