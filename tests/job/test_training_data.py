"""Where a run's tasks come from, while it trains: a running trainer follows its mix."""

import msgspec
import pytest

from agent_layer.health.progress import StepProgress
from trainer_adapter.config import SourceConfig

from .conftest import train

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(300),
]


@pytest.mark.usefixtures("player")
def test_a_mix_that_a_user_changes_is_what_the_running_trainer_submits_next(configure, settings, tmp_path, agent_layer):
    for name in ("easy", "hard"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{name}-1", "input": 1}}\n{{"id": "{name}-2", "input": 2}}\n')
    sources = [SourceConfig(path=tmp_path / f"{name}.jsonl") for name in ("easy", "hard")]
    plain = configure(6, groups_per_step=2, max_staleness=0)

    def change(report: StepProgress):
        if report.step == 3:
            assert agent_layer("mix", "r", "easy=0")[0] == 0

    reports = train(msgspec.structs.replace(plain, tasks=sources), settings, report=change)

    trained = [{task.partition("-")[0] for task in report.success_by_task} for report in reports]
    assert trained == [{"easy", "hard"}] * 3 + [{"hard"}] * 3
