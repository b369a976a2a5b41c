"""Tasks files: how they are read, and the errors about bad ones."""

import pytest

from agent_layer.dispatcher.models import required_capabilities
from agent_layer.dispatcher.tasks import check_task, parse_tasks, read_tasks, task_line
from agent_layer.errors import BadInputError
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.ids import content_hash
from agent_layer.schema.sandbox import Resources, SandboxSpec
from agent_layer.schema.task import Limits, RewardSpec, SideCall, Task


def parse(*lines, **options):
    return parse_tasks([line.encode() for line in lines], subject="tasks.jsonl", run="r", **options)


def test_every_field_arrives():
    line = (
        '{"id":"t","task_type":"math","input":{"q":1},"grading":2,"env":"e","agent":"a:b","scorer":"m:f",'
        '"rewards":{"x":{"weight":0.5,"required":false}},"group_size":3,"sampling":{"temperature":1},'
        '"limits":{"turns":4},"priority":2,"needs":["gpu"],"seed":7,"labels":{"k":"v"}}'
    )

    assert parse(line) == [
        Task(
            id="t",
            run="r",
            task_type="math",
            input={"q": 1},
            grading=2,
            env="e",
            agent="a:b",
            scorer="m:f",
            rewards={"x": RewardSpec(weight=0.5, required=False)},
            group_size=3,
            sampling={"temperature": 1},
            limits=Limits(turns=4),
            priority=2,
            needs=["gpu"],
            seed=7,
            labels={"k": "v"},
        )
    ]


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id":"t","input":1}\n', encoding="utf-8-sig")

    assert [task.id for task in read_tasks(path, run="r")] == ["t"]


def test_sampling_that_no_gateway_takes_is_refused_before_anything_is_queued():
    with pytest.raises(BadInputError, match=r"line 1: expected sampling .* found messages, stream"):
        parse('{"input":1,"sampling":{"temperature":1,"stream":true,"messages":[]}}')


def test_side_calls_are_kinds_and_patterns_and_what_would_fit_every_call_is_refused():
    (task,) = parse('{"input":1,"side_calls":["titles",{"system":"*commit*","has_tools":false}]}')

    assert task.side_calls == ["titles", SideCall(system="*commit*", has_tools=False)]
    assert parse(task_line(task).decode())[0].side_calls == decode(encode(task)).side_calls == task.side_calls
    for wrong in ('"naps"', "{}", '{"name":"x"}', '{"sytem":"x"}'):
        with pytest.raises(BadInputError, match=r"line 1"):
            parse(f'{{"input":1,"side_calls":[{wrong}]}}')


def test_a_line_without_id_is_named_by_its_hash():
    line = '{"input": "2+2"}'

    assert parse(line, "", f"  {line} ".replace("2+2", "3+3"))[0].id == content_hash(line.encode())[:12]


def test_the_command_line_wins_over_the_lines():
    (task,) = parse('{"input":1,"group_size":2}', group_size=8, split="eval")

    assert (task.group_size, task.split) == (8, "eval")


def test_what_measures_a_run_does_not_delay_it_unless_its_line_says_so():
    answer, untold = '{"input":1,"priority":0}', '{"input":2}'

    assert [task.priority for task in parse(answer, untold)] == [0, 0]
    assert [task.priority for task in parse(answer, untold, split="eval")] == [0, -1]


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("{", "JSON object"),
        ("[1]", "JSON object"),
        ("{}", "input"),
        ('{"input":1,"gradign":2}', "gradign"),
        ('{"input":1,"limits":{"turn":2}}', "turn"),
        ('{"input":1,"group_size":0}', "group_size from 1"),
        ('{"input":1,"group_size":"8"}', "int"),
        ('{"input":1,"id":"no spaces"}', "no spaces"),
        ('{"input":1,"needs":["a,b"]}', "a,b"),
        ('{"input":1,"priority":5000}', "priority"),
        ('{"input":1,"partial":"x"}', "partial"),
        ('{"input":1,"expected_seconds":-1}', "expected_seconds from 0"),
        ('{"input":1,"seed":99999999999999999999}', "64 bits"),
        ('{"input":99999999999999999999}', "64 bits"),
        ('{"input":0,"id":"first"}', "id 'first' of line 1"),
        ('{"input":1,"sandbox":{"isolation":"strong"}}', "strong"),
        ('{"input":1,"sandbox":{"memory_mb":64}}', "memory_mb"),
        ('{"input":1,"sandbox":{"resources":{"memory_mb":0}}}', "a positive memory_mb"),
        ('{"input":1,"sandbox":{"workdir":"work"}}', "an absolute path such as /work"),
        ('{"input":1,"files":{"":"x"}}', "name a file"),
        ('{"input":1,"artifacts":["../secret"]}', "below the sandbox's work directory"),
        ('{"input":1,"artifacts":["/work/out"]}', "below the sandbox's work directory"),
        ('{"input":1,"history":"none"}', "none"),
        ('{"input":1,"limits":{"context_tokens":0}}', "limits.context_tokens above 0"),
        ('{"input":1,"limits":{"observation_tokens":-1}}', "limits.observation_tokens above 0"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line, finding):
    with pytest.raises(BadInputError, match=r"tasks\.jsonl line 3") as caught:
        parse('{"input":1,"id":"first"}', "", line)

    assert finding in str(caught.value)


def test_a_line_names_its_sandbox_files_artifacts_and_context():
    (task,) = parse(
        '{"input":1,"sandbox":{"isolation":"process","resources":{"memory_mb":64}},"files":{"a.py":"x"},'
        '"artifacts":["out"],"history":"summarise","limits":{"context_tokens":2000,"observation_tokens":100}}'
    )

    assert task.sandbox == SandboxSpec(isolation="process", resources=Resources(memory_mb=64))
    assert (task.files, task.artifacts, task.history) == ({"a.py": "x"}, ["out"], "summarise")
    assert (task.limits.context_tokens, task.limits.observation_tokens) == (2000, 100)
    assert required_capabilities(task) == ["isolation:process"]
    (named,) = parse('{"input":1,"needs":["gpu"],"sandbox":{"kind":"docker","image":"python:3"}}')
    assert required_capabilities(named) == ["gpu", "sandbox:docker"]


def test_a_missing_or_empty_file_is_said_to_be_one(tmp_path):
    with pytest.raises(BadInputError, match="check the path"):
        read_tasks(tmp_path / "none.jsonl", run="r")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(BadInputError, match="at least one task"):
        read_tasks(tmp_path / "empty.jsonl", run="r")


@pytest.mark.parametrize("depth", [100_000, 3000])
def test_what_is_nested_too_deep_to_be_read_everywhere_is_refused_in_a_sentence(depth):
    with pytest.raises(BadInputError, match=r"tasks\.jsonl line 1: expected"):
        parse(f'{{"input":{"[" * depth}{"]" * depth}}}')


@pytest.mark.parametrize("field", ["input", "grading"])
def test_a_task_that_is_taken_can_be_read_by_who_stands_deep_in_calls(field):
    def make_task(depth):
        value: object = 1
        for level in range(depth):
            value = [value] if level % 2 else {"in": value}
        return Task(id="t", run="r", **{field: value})

    def below(num_calls, read):
        return below(num_calls - 1, read) if num_calls else read()

    written = encode(check_task(make_task(256)))
    assert below(512, lambda: decode(written)) == make_task(256)
    with pytest.raises(BadInputError, match=f"{field}: expected at most 256"):
        check_task(make_task(257))
