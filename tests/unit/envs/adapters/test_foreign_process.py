"""Processes of foreign packages: each request gets its own answer, and no failure of theirs is one of ours."""

import asyncio
import random

import pytest

import envs.adapters.foreign_process as foreign
from agent_layer.errors import AgentFailedError, BadInputError, UnreachableError
from envs.adapters.foreign_process import ForeignPackage, ask_foreign, ask_foreign_once, find_python
from envs.failures import ModelCallError

from ....waiting import scaled, until


async def test_requests_side_by_side_get_their_own_answers(toy):
    drawn = random.Random(5)

    async def answer(_role, body):
        await asyncio.sleep(drawn.random() / 100)
        return {"said": body["say"] * 10}

    wanted = [[drawn.randrange(1000) for _ in range(drawn.randrange(6))] for _ in range(60)]
    found = await asyncio.gather(*(ask_foreign(toy, "back", {"numbers": one}, answer) for one in wanted))

    assert [one["found"] for one in found] == [[number * 10 for number in one] for one in wanted]
    assert 1 < len(foreign._processes["toy"]) <= 8


@pytest.mark.parametrize(
    ("operation", "kind", "text"),
    [
        ("refuse", BadInputError, "no harness here"),
        ("fail", AgentFailedError, r"adapter 'toy': ValueError: broken rubric \(toy 1\)"),
        ("leave", AgentFailedError, "adapter 'toy': SystemExit: 3"),
        ("overflow", AgentFailedError, "Out of range float values are not JSON compliant.*, in its answer"),
        ("garble", UnreachableError, "its last output: no message: b?'?Traceback: none"),
        ("die", UnreachableError, "ended with status 9; its last output: last words"),
    ],
)
async def test_a_failure_says_whose_it_is_and_the_next_request_is_answered(toy, operation, kind, text):
    with pytest.raises(kind, match=text):
        await ask_foreign(toy, operation, {"what": "harness"})
    assert (await ask_foreign(toy, "back", {"numbers": []}))["found"] == []


@pytest.mark.parametrize(
    ("package", "text"),
    [
        (
            "msgspec",
            r"cannot import name 'gone'.*\(msgspec .*tested with 0\.0\.1, install msgspec==0\.0\.1 into .* fails",
        ),
        ("no-such-package", r"no no-such-package there; install no-such-package==0\.0\.1 into "),
    ],
)
def test_a_package_of_another_version_is_named_with_what_to_install(toy, tmp_path, package, text):
    guest = tmp_path / "guest.py"
    guest.write_text(
        "from guest_protocol import describe_version, explain_missing_names\n"
        f"with explain_missing_names(describe_version({package!r}, '0.0.1')):\n    from msgspec import gone\n"
    )
    with pytest.raises(UnreachableError, match=text):
        ask_foreign_once(toy._replace(guest=str(guest)), "list", {}, 60)


async def test_a_model_call_that_fails_is_what_the_request_raises(toy):
    async def answer(_role, _body):
        raise ModelCallError("rollout_limit", 400)

    with pytest.raises(ModelCallError, match="rollout_limit"):
        await ask_foreign(toy, "back", {"numbers": [1, 2]}, answer)


@pytest.mark.parametrize(("operation", "is_killed"), [("wait", False), ("hang", True)])
async def test_a_cancelled_request_ends_and_foreign_code_that_does_not_is_killed(
    toy, monkeypatch, tmp_path, operation, is_killed
):
    monkeypatch.setattr(foreign, "_CANCEL_SECONDS", scaled(0.5))
    begun = tmp_path / "begun"
    running = asyncio.create_task(ask_foreign(toy, operation, {"begun": str(begun)}))
    await until(begun.exists)
    (process,) = foreign._processes["toy"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: process.num_running == 0)
    assert process.is_alive is not is_killed


def test_the_operators_secrets_do_not_reach_foreign_code(toy, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_API_KEY", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    seen = ask_foreign_once(toy, "see", {}, 60)
    assert not [name for name in seen["variables"] if name.startswith(("AGENT_LAYER_", "AWS_"))]


def test_a_package_that_is_nowhere_is_named_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_LAYER_ADAPTERS_DIR", str(tmp_path))
    package = ForeignPackage("verifiers", "no_such_module", "guest.py", max_runs=1)
    with pytest.raises(BadInputError, match=r"an interpreter that has no_such_module.*python -m venv .*verifiers"):
        find_python(package)
