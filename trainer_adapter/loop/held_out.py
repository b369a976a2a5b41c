"""Evaluation while a run trains: when it is due, and what a step reports of it."""

from collections.abc import Callable

from agent_layer.dispatcher import Dispatcher
from agent_layer.health import RoundProgress
from agent_layer.store import Store
from envs.evaluation import HeldOutEvaluator, RoundResult, RoundSettings
from trainer_adapter.config import EvaluationConfig
from trainer_adapter.tasks import load_held_out
from trainer_adapter.verl import WeightPublisher


class HeldOutEvaluation:
    """Evaluates versions of a run while its trainer waits, so that each round is of one version.

    Args:
        config: sets of held-out tasks, and when they are due.
        run: the training run.
        store: has the trajectories.
        dispatcher: where rollouts are queued.
        publisher: serves versions.

    Raises: BadInputError: tasks cannot be used.
    """

    def __init__(
        self, config: EvaluationConfig, run: str, store: Store, dispatcher: Dispatcher, publisher: WeightPublisher
    ) -> None:
        self._config, self._publisher = config, publisher
        self._evaluator = HeldOutEvaluator(
            run,
            load_held_out(config.tasks, run=run),
            RoundSettings(n=config.rollouts, threshold=config.threshold, seed=0),
            {} if config.temperature is None else {"temperature": config.temperature},
            store=store,
            dispatcher=dispatcher,
        )

    def is_due(self, step: int) -> bool:
        """Return whether the weights after a step are evaluated; step 0: the first weights."""
        return step % self._config.every_steps == 0 if step else self._config.at_start

    def evaluate(self, version: int, stop: Callable[[], bool]) -> list[RoundProgress]:
        """Run the rounds of the version that every engine serves; return those that ended.

        Raises: AgentLayerError: an engine, Redis or the objects do not answer.
        """
        results = self._evaluator.evaluate(
            self._publisher.find(version),
            serve=lambda: self._publisher.serve(version, is_required=True, stop=stop),
            stop=stop,
        )
        return [_report_round(name, version, result) for name, result in results.items()]

    def cancel(self, version: int) -> None:
        """Cancel what is queued of the rounds of a version that is served no more."""
        self._evaluator.cancel(version)


def _report_round(name: str, version: int, result: RoundResult) -> RoundProgress:
    figures = result.figures
    return RoundProgress(
        name=name,
        round=result.round.name,
        policy_version=version,
        pass_rate=figures.pass_at_1 and figures.pass_at_1.value,
        reward_mean=figures.mean_reward and figures.mean_reward.value,
        num_rewards=figures.num_rewards,
        num_asked=figures.num_asked,
    )
