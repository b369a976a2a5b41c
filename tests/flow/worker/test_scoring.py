"""This file holds how attempts are judged: outside the agent, and without taking a failure for a zero."""

from agent_layer.schema.task import Limits, RewardSpec


async def test_the_scorer_sees_the_grading_and_the_stored_trajectory_and_the_agent_does_not(
    site, task, chatter, monkeypatch, tmp_path
):
    (tmp_path / "grader.py").write_text(
        "async def score(task, trajectory, result):\n"
        "    return {'right': task.grading == 'secret', 'turns': len(trajectory.steps), 'result': result}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    async def agent(view, rollout):
        seen.append(view)
        rollout.reward(100.0)
        return await chatter(view, rollout)

    (trajectory,) = await site.run(agent, task(grading="secret", scorer="grader:score"))

    assert "secret" not in repr(seen)
    assert trajectory.reward == 1 + 2 + 0.5


async def test_a_scorer_that_breaks_gives_no_reward_rather_than_zero(site, task, chatter, monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text(
        "async def score(task, trajectory, result):\n    raise OSError('no verifier')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    (trajectory,) = await site.run(chatter, task(), scorer="broken:score")

    assert trajectory.reward is None
    assert trajectory.accepted
    assert (trajectory.outcome.cause, trajectory.rewards[-1].status) == ("verifier", "verifier_error")


async def test_a_score_that_is_no_number_is_null(site, task, chatter, monkeypatch, tmp_path):
    (tmp_path / "strange.py").write_text("async def score(task, trajectory, result):\n    return 10**400\n")
    monkeypatch.syspath_prepend(tmp_path)

    (trajectory,) = await site.run(chatter, task(scorer="strange:score"))

    assert (trajectory.reward, bool(trajectory.accepted)) == (None, True)


async def test_a_scorer_that_does_not_import_ends_its_task_and_no_other(site, task, chatter, monkeypatch, tmp_path):
    (tmp_path / "halting.py").write_text("raise RuntimeError('no configuration')\n")
    monkeypatch.syspath_prepend(tmp_path)

    trajectories = await site.run(chatter, task("bad", scorer="halting:score"), task("good"))

    assert [t.task.id for t in trajectories if t.accepted] == ["good"]
    assert "no configuration" in site.dispatcher.dead()[0].errors[0]


async def test_out_of_turns_is_scored_as_it_stands(site, task, chatter):
    rewards = {"found": RewardSpec(), "style": RewardSpec()}

    async def agent(view, rollout):
        rollout.reward(0.25, name="style")
        await chatter(view, rollout)

    (trajectory,) = await site.run(agent, task(limits=Limits(turns=1), rewards=rewards))

    assert (trajectory.outcome.status, trajectory.outcome.cause) == ("truncated", "policy")
    assert trajectory.reward == 0.25
    assert len(trajectory.steps) == 1


async def test_what_a_scorer_leaves_open_is_null_whatever_the_agent_said(site, task, chatter, monkeypatch, tmp_path):
    (tmp_path / "shy.py").write_text("async def score(task, trajectory, result):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def agent(view, rollout):
        rollout.reward(100.0)
        return await chatter(view, rollout)

    (trajectory,) = await site.run(agent, task(), scorer="shy:score")

    assert trajectory.reward is None
    assert (trajectory.rewards[-1].status, trajectory.outcome.cause) == ("missing", None)


async def test_a_scorer_that_cannot_be_found_ends_the_rollout_before_the_agent_runs(site, task, chatter):
    await site.run(chatter, task(scorer="no:where"))

    (dead,) = site.dispatcher.dead()
    assert dead.num_attempts == 1
    assert "no:where" in dead.errors[0]
    assert site.engine.calls == []
