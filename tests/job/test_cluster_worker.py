"""What veRL's worker on Ray does between the optimizer steps of one update."""
# ruff: noqa: PLC0415  # torch and veRL take seconds to import, and collection stays fast

import pytest

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(600),
]


def test_every_optimizer_step_of_an_update_has_the_rate_of_the_schedule():
    import torch
    from verl.utils.torch_functional import get_constant_schedule_with_warmup

    from trainer_adapter.cluster.worker import hold_rate

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    scheduler = get_constant_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=0)
    rates: list[float] = []

    for rate in (5e-4, 1e-4):
        hold_rate(optimizer, scheduler, rate)
        for _ in range(2):  # veRL moves its scheduler after each call, and ours make one optimizer step
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
            scheduler.step()

    assert rates == pytest.approx([5e-4, 5e-4, 1e-4, 1e-4])
