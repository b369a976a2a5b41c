"""A training attempt that lacks tokens is not accepted, and its record has the reason."""


async def test_a_training_attempt_without_tokens_is_dead_with_the_reason(harness, task, chatter, until):
    harness.engine.token_ids = False

    await harness.run(chatter, task(group_size=1))

    (row,) = await until(lambda: harness.store.query(status="failed").items)
    trajectory = harness.store.get(row.trajectory_id)
    assert (trajectory.outcome.cause, trajectory.accepted, trajectory.reward) == ("infra", None, None)
    assert "training needs token ids" in trajectory.outcome.error
    (given_up,) = harness.dispatcher.dead()
    assert "training needs token ids" in str(given_up)


async def test_an_attempt_that_only_measures_needs_no_tokens(harness, task, chatter):
    harness.engine.token_ids = False

    (trajectory,) = await harness.run(chatter, task(group_size=1, split="eval"))

    assert trajectory.accepted
    assert trajectory.reward == 0.5
