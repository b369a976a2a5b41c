"""Rollouts for a trainer that is not ours: its rows, versions and rewards are those of the store."""

import ast
import inspect
from types import SimpleNamespace

import msgspec
import pytest

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import Task
from agent_layer.store import list_batches, open_store
from trainer_adapter.config import HeldOutConfig
from trainer_adapter.data import rebuild_batch, samples_of
from trainer_adapter.tasks.held_out import read_left_out

from ..documents import blocks
from ..waiting import scaled
from .conftest import RUN

pytestmark = pytest.mark.usefixtures("player")


@pytest.fixture
def trainer():
    """A trainer as TRL's looks to a rollout function."""
    import torch  # noqa: PLC0415  # seconds

    def get_state_dict(_):
        return {"weight": torch.zeros(1)}

    return SimpleNamespace(
        model=SimpleNamespace(training=True),
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(num_processes=1, get_state_dict=get_state_dict),
        processing_class=SimpleNamespace(eos_token_id=0),
        temperature=1.0,
        num_generations=3,
        args=SimpleNamespace(steps_per_generation=1, gradient_accumulation_steps=1),
    )


@pytest.fixture
def rollouts(settings, model):
    from trainer_adapter.foreign import TrlRollouts  # noqa: PLC0415  # torch takes seconds

    tasks = [Task(id=name, run=RUN, input=name) for name in "ab"]
    return TrlRollouts(model, tasks, settings.model_copy(update={"run": RUN}), patience_seconds=60)


PROMPTS = ["a"] * 3 + ["b"] * 3


def test_each_row_is_the_rollouts_own(settings, rollouts, trainer, wait_until):
    store = open_store(settings)
    for step in range(2):
        trainer.state.global_step = step
        rows = rollouts(PROMPTS, trainer)

        assert {len(column) for column in rows.values()} == {6}
        assert len(set(rows["trajectory_id"])) == 6
        for place, trajectory_id in enumerate(rows["trajectory_id"]):
            trajectory = store.get(trajectory_id)
            (sample,) = samples_of(trajectory).samples
            assert trajectory.started.task_id == PROMPTS[place]
            assert rows["prompt_ids"][place] == list(sample.prompt_ids)
            assert rows["completion_ids"][place] == list(sample.response_ids)
            assert rows["logprobs"][place] == list(sample.logprobs)
            assert rows["env_mask"][place] == list(sample.loss_mask)
            assert rows["agent_layer_reward"][place] == trajectory.reward
            assert list(sample.versions) == [step + 1]
    wait_until(lambda: len(list_batches(store.redis, store.keys, RUN)) == 2)  # they are shipped beside
    batches = list_batches(store.redis, store.keys, RUN)
    assert [(one.step, one.policy_version, rebuild_batch(one, store.get).differences) for one in batches] == [
        (1, 1, []),
        (2, 2, []),
    ]


def test_rollouts_are_of_the_present_weights_even_if_a_trainer_counts_from_0_again(settings, rollouts, trainer):
    for version in (1, 2):
        found = map(open_store(settings).get, rollouts(PROMPTS, trainer)["trajectory_id"])
        assert [list(sample.versions) for one in found for sample in samples_of(one).samples] == [[version]] * 6


def test_a_group_is_what_trl_compares(settings, rollouts, trainer, player):
    player.silent = {1}
    rows = rollouts(["a"] * 6, trainer)
    groups = [one and open_store(settings).get(one).started.group_id for one in rows["trajectory_id"]]
    assert [len(set(part) - {None}) for part in (groups[:3], groups[3:])] == [1, 1]
    assert groups[2::3] == [None, None]
    assert groups[0] != groups[3]


def test_a_rollout_that_cannot_be_trained_is_masked_and_unscored(rollouts, trainer, player):
    player.silent = {1}
    rows = rollouts(PROMPTS, trainer)

    left_out = [place for place, one in enumerate(rows["trajectory_id"]) if one is None]
    assert [PROMPTS[place] for place in left_out] == ["a", "b"]
    for place in left_out:
        assert (rows["env_mask"][place], rows["agent_layer_reward"][place]) == ([0], None)
        assert len(rows["completion_ids"][place]) == len(rows["logprobs"][place]) == 1
    assert rollouts.reward(completions=[], agent_layer_reward=rows["agent_layer_reward"]).count(None) == 2


@pytest.mark.parametrize("silent", [{0, 1}, {0, 1, 2}])
def test_a_step_in_which_nothing_is_compared_is_an_error(rollouts, trainer, player, silent):
    player.silent = silent
    with pytest.raises(AgentLayerError, match="found none in 2 groups"):
        rollouts(PROMPTS, trainer)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: setattr(one.model, "training", False), "agent-layer eval"),
        (lambda one: setattr(one.accelerator, "num_processes", 2), "one training process, found 2"),
        (lambda one: setattr(one.model, "peft_config", {}), "without peft_config"),
        (lambda one: setattr(one.args, "gradient_accumulation_steps", 2), "steps_per_generation"),
    ],
)
def test_what_would_not_be_exact_is_refused(rollouts, trainer, change, sentence):
    change(trainer)
    with pytest.raises(BadInputError, match=sentence):
        rollouts(PROMPTS, trainer)


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([], "found 0 tasks"),
        ([Task(id="a", run=RUN, input=1)] * 2, "2 tasks with 1 ids"),
        ([Task(id="a", run=RUN, input=1, split="eval")], "expected split 'train'"),
    ],
)
def test_tasks_that_cannot_be_named_or_trained_are_refused(settings, tasks, sentence):
    from trainer_adapter.foreign import RoundPlayer  # noqa: PLC0415

    with pytest.raises(BadInputError, match=sentence):
        RoundPlayer(tasks, settings, RUN)


@pytest.mark.parametrize("prompt", ["c", [{"role": "user", "content": "a"}]])
def test_a_prompt_that_is_no_task_is_refused(rollouts, trainer, prompt):
    with pytest.raises(BadInputError, match="expected one of the 2 tasks"):
        rollouts([prompt], trainer)


def test_no_groups_are_no_wait(settings):
    from trainer_adapter.foreign import RoundPlayer  # noqa: PLC0415

    player = RoundPlayer([Task(id="a", run=RUN, input=1)], settings, RUN, patience_seconds=0.1)
    assert player.play([], 0, 1.0) == []


def test_a_second_trainer_of_a_run_is_refused_while_the_first_lives(settings, tmp_path):
    """Both would have the name of one consumer, and acknowledge each other's groups."""
    from trainer_adapter.foreign import RoundPlayer  # noqa: PLC0415

    elsewhere = settings.model_copy(update={"dir": tmp_path / "elsewhere", "redis_url": settings.redis_url})
    tasks = [Task(id="a", run=RUN, input=1)]
    first = RoundPlayer(tasks, settings, RUN)
    first.play([], 0, 1.0)
    for place in (settings, elsewhere):
        with pytest.raises(BadInputError, match=f"run {RUN}: expected no other trainer"):
            RoundPlayer(tasks, place, RUN).play([], 0, 1.0)

    del first
    assert RoundPlayer(tasks, elsewhere, RUN).play([], 0, 1.0) == []


@pytest.fixture
def held_out(tmp_path):
    """A file with one held-out task."""
    path = tmp_path / "held.jsonl"
    path.write_text('{"id": "h", "input": "a"}\n')
    return path


def make_rollouts(settings, model, names="ab", **options):
    from trainer_adapter.foreign import TrlRollouts  # noqa: PLC0415

    settings = settings.model_copy(update={"run": RUN})
    tasks = [Task(id=name, run=RUN, input=name) for name in names]
    return TrlRollouts(model, tasks, settings, patience_seconds=60, **options)


def test_trl_has_no_row_of_a_held_out_task_and_none_at_a_later_start(settings, model, trainer, held_out):
    for options in ({"held_out": [HeldOutConfig(path=held_out)]}, {}):
        rollouts = make_rollouts(settings, model, **options)
        assert rollouts.dataset_rows() == [{"prompt": "b"}]
        with pytest.raises(BadInputError, match="task 'a': expected one of the 1 tasks"):
            rollouts(PROMPTS, trainer)
    assert [one.task_id for one in read_left_out(settings, RUN)] == ["a"]
    with pytest.raises(BadInputError, match="such as a, which has the input of held-out task h of held"):
        make_rollouts(settings, model, "a")


def test_a_rollout_that_played_a_held_out_task_is_not_trained(settings, model, trainer, player, held_out):
    rollouts = make_rollouts(settings, model, "bc", held_out=[HeldOutConfig(path=held_out)])
    prompts = ["b"] * 3 + ["c"] * 3
    player.plays = lambda task: msgspec.structs.replace(task, input="a") if task.id == "b" else task
    assert rollouts(prompts, trainer)["agent_layer_reward"][:3] == [None] * 3

    player.plays = lambda task: msgspec.structs.replace(task, input="a")
    with pytest.raises(AgentLayerError, match="has the input of held-out task h of held; held-out tasks are not"):
        rollouts(prompts, trainer)


@pytest.mark.parametrize("option", ["${path}", [{"path": "${path}"}]])
def test_verl_has_no_prompt_of_a_held_out_task(settings, held_out, tmp_path, monkeypatch, option):
    from omegaconf import OmegaConf  # noqa: PLC0415

    from trainer_adapter.cluster.task_data import TaskDataset  # noqa: PLC0415

    for name, value in settings.model_copy(update={"run": RUN}).environment().items():
        monkeypatch.setenv(name, value)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "input": "a"}\n{"id": "b", "input": "b"}\n')
    config = OmegaConf.create({"path": str(held_out), "held_out": option})
    rows = TaskDataset(str(tasks), config)
    assert [rows[place]["task_id"] for place in range(len(rows))] == ["b"]


@pytest.fixture
def open_async(settings, model):
    """``open_async(…)``: a worker of TRL's AsyncGRPOTrainer, whose first weights are served."""
    from trainer_adapter.foreign import AsyncTrlRollouts  # noqa: PLC0415

    opened = []

    def open_async(**options):
        tasks = [Task(id=name, run=RUN, input=name) for name in "ab"]
        own = settings.model_copy(update={"run": RUN})
        options = {"group_size": 3, "groups_per_round": 2, "patience_seconds": 60} | options
        worker = AsyncTrlRollouts(model, tasks, own, **options)
        opened.append(worker)
        synchronize(worker, 1)
        return worker

    yield open_async
    for worker in opened:
        worker.stop()


def synchronize(worker, number):
    """Do what TRL does after a step: its weights get this number."""
    import torch  # noqa: PLC0415  # seconds

    worker.send_weights(iter([("weight", torch.zeros(1))]))
    worker.update_model_version(number)


def test_an_async_worker_hands_over_stored_rows_with_trls_number_of_their_weights(settings, open_async, wait_until):
    worker, store = open_async(), open_store(settings)
    worker.start()
    rows = [worker.rollout_buffer.get(timeout=scaled(60)) for _ in range(6)]
    synchronize(worker, 2)
    rows += [worker.rollout_buffer.get(timeout=scaled(60)) for _ in range(12)]

    numbers = []
    for row in rows:
        trajectory = store.get(row.trajectory_id)
        (sample,) = samples_of(trajectory).samples
        assert row.input_ids.tolist() == [*sample.prompt_ids, *sample.response_ids]
        num_prompt = len(sample.prompt_ids)
        assert row.completion_mask.tolist() == [0] * num_prompt + list(sample.loss_mask)
        assert row.old_log_probs.tolist() == [0.0] * num_prompt + list(sample.logprobs)
        assert row.metrics == {"reward": trajectory.reward}
        numbers.append((row.model_version, {version for version in sample.versions if version >= 0}))
    assert all(versions == {number} for number, versions in numbers)  # the first sync is version 1, too
    assert {number for number, _ in numbers} == {1, 2}
    groups = [[row for row in rows if row.group_id == group_id] for group_id in sorted({row.group_id for row in rows})]
    assert [len(group) for group in groups] == [3] * 6
    for group in groups:
        assert len({store.get(row.trajectory_id).started.group_id for row in group}) == 1
        assert sum(row.advantage for row in group) == pytest.approx(0)
        assert max(group, key=lambda row: row.advantage).metrics == {"reward": 1.0}
    worker.check_health(1.0)
    wait_until(lambda: list_batches(store.redis, store.keys, RUN))
    assert all(rebuild_batch(one, store.get).differences == [] for one in list_batches(store.redis, store.keys, RUN))


def test_an_async_worker_that_cannot_go_on_says_why_when_trl_asks(open_async, player, wait_until):
    player.equal = True
    worker = open_async(groups_per_round=1)
    worker.start()

    def is_refused():
        try:
            worker.check_health(1.0)
        except AgentLayerError as error:
            return "found none in 10 rounds of 1" in str(error)
        return False

    wait_until(is_refused)


@pytest.mark.parametrize("options", [{"group_size": 1}, {"groups_per_round": 0}, {"groups_per_round": -1}])
def test_an_async_worker_that_could_compare_nothing_is_refused(open_async, options):
    with pytest.raises(BadInputError, match="expected groups of at least 2 rollouts and a round of at least 1, found"):
        open_async(**options)


def test_an_async_worker_stops_while_it_waits(open_async, player):
    player.fate = lambda _: None
    worker = open_async(patience_seconds=600)
    worker.start()
    worker.stop()
    worker.check_health(1.0)
    assert worker.rollout_buffer.empty()


def test_the_programs_of_the_page_name_arguments_that_there_are():
    from trainer_adapter import foreign  # noqa: PLC0415  # torch takes seconds

    programs = [ast.parse(text) for page, text in blocks("python") if page.endswith("other-trainers.md")]
    calls = [node for tree in programs for node in ast.walk(tree) if isinstance(node, ast.Call)]
    own = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in foreign.__all__]
    assert {call.func.id for call in own} >= {"TrlRollouts", "AsyncTrlRollouts", "PrimeRlFeed", "make_trace"}
    for call in own:
        named = {one.arg: None for one in call.keywords}
        inspect.signature(getattr(foreign, call.func.id)).bind(*call.args, **named)
