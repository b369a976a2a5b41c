"""Micro-batches of prime-rl: each token of a batch is trained once, in its own row, on one rank."""

from itertools import accumulate, pairwise

from hypothesis import given, strategies as st

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from trainer_adapter.data.advantages import TrainingBatch
from trainer_adapter.foreign.micro_batches import pack_rows, split_ranks

SEQ_LEN = 12


@st.composite
def batches(draw):
    """A batch of rows that fit, and their advantages."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12))
    first, samples = 0, []
    for number, (num_prompt, num_response) in enumerate(sizes):
        mask = draw(st.lists(st.integers(0, 1), min_size=num_response - 1, max_size=num_response - 1))
        sample = TrainingSample(
            sample_id=str(number),
            trajectory_id=str(number),
            run="r",
            task_id="t",
            prompt_ids=TokenIds(range(first, first + num_prompt)),
            response_ids=TokenIds(range(first + num_prompt, first + num_prompt + num_response)),
            loss_mask=TokenIds([*mask, 1]),
            logprobs=Logprobs([-0.5 * one for one in (*mask, 1)]),
            versions=TokenIds([one - 1 for one in (*mask, 1)]),
            task_type=f"type-{number % 2}",
        )
        samples.append(sample)
        first += num_prompt + num_response
    batch = TrainingBatch(
        group_ids=["g"] * len(samples),
        trajectory_ids=[one.trajectory_id for one in samples],
        rewards=[1.0] * len(samples),
        reward_ids=[[] for _ in samples],
        samples=samples,
        rollout_of=list(range(len(samples))),
    )
    return batch, [[float(place * one) for one in sample.loss_mask] for place, sample in enumerate(samples, 1)]


@given(batches(), st.integers(1, 5))
def test_each_row_is_on_one_rank_with_its_own_columns(drawn, num_ranks):
    batch, advantages = drawn
    ranks = split_ranks(pack_rows(batch, advantages, 0.7, SEQ_LEN), num_ranks)

    assert len(ranks) == num_ranks
    assert len({len(rank) for rank in ranks}) == 1
    found = {}
    for one in (one for rank in ranks for one in rank):
        columns = [one.input_ids, one.loss_mask, one.advantages, one.inference_logprobs, one.position_ids]
        columns += [one.temperatures, one.env_names]
        assert {len(column) for column in columns} == {sum(one.seq_lens)}
        assert sum(one.seq_lens) <= SEQ_LEN
        assert one.sequence_lengths == one.seq_lens
        if not any(one.loss_mask):
            assert not any(one.advantages)
            continue
        for start, end in pairwise(accumulate(one.seq_lens, initial=0)):
            ids = tuple(one.input_ids[start:end])
            assert ids not in found
            found[ids] = [column[start:end] for column in columns[1:]]
    assert len(found) == len(batch.samples)
    for sample, own in zip(batch.samples, advantages, strict=True):
        size, num_prompt = len(sample.prompt_ids) + len(sample.response_ids), len(sample.prompt_ids)
        assert found[*sample.prompt_ids, *sample.response_ids] == [
            [False] * num_prompt + [one == 1 for one in sample.loss_mask],
            [0.0] * num_prompt + own,
            [0.0] * num_prompt + list(sample.logprobs),
            list(range(size)),
            [0.7] * size,
            [sample.task_type] * size,
        ]
