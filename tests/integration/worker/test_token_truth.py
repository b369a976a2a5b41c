"""A training attempt that lacks tokens is not accepted, and its record has the reason."""


async def test_a_training_attempt_without_tokens_is_dead_with_the_reason(site, task, chatter, until):
    site.engine.token_ids = False

    await site.run(chatter, task(group_size=1))

    (row,) = await until(lambda: site.store.query(status="failed").items, 60)
    trajectory = site.store.get(row.trajectory_id)
    assert (trajectory.outcome.cause, trajectory.accepted, trajectory.reward) == ("infra", None, None)
    assert "training needs token ids" in trajectory.outcome.error
    (given_up,) = site.dispatcher.dead()
    assert "training needs token ids" in str(given_up)


async def test_an_attempt_that_only_measures_needs_no_tokens(site, task, chatter):
    site.engine.token_ids = False

    (trajectory,) = await site.run(chatter, task(group_size=1, split="eval"))

    assert trajectory.accepted
    assert trajectory.reward == 0.5
