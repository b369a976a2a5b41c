"""This file holds where calls go: to an engine that serves the rollout's run, or to a provider by the model's name."""

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.engines.cuts import Cuts
from agent_layer.gateway.model_names import ModelNames, read_model_names
from agent_layer.gateway.policy_book import PolicyBook
from agent_layer.gateway.provider import Provider
from agent_layer.gateway.rollouts import LiveRollout
from agent_layer.gateway.versions import EngineWatch
from agent_layer.settings import Settings
from agent_layer.store.engines import Engine

__all__ = ["Places"]


class Places:
    """Gives calls their places.

    Args:
        settings: name the models of providers, and where LiteLLM answers for them.
        engines: all engines.
        policies: told of each version before anything is sampled by it.
    """

    def __init__(self, settings: Settings, engines: EngineWatch, policies: PolicyBook) -> None:
        self._settings = settings
        self._engines = engines
        self._policies = policies
        self._names: ModelNames = read_model_names(settings.models)
        self._has_providers = self._names.needs_provider
        self._providers: dict[str, Provider] = {}

    async def take(self, rollout: LiveRollout, request: ChatRequest | None = None) -> Engine:
        """Take a place; give it back with ``give``.

        Args:
            rollout: that calls; it keeps its engine.
            request: names the model that the agent wants; None: the policy is meant.

        Raises: EngineError: no engine served within ``request_seconds``. BadInputError: no provider is set up.
        """
        if request and self._has_providers and (model := self._names.provider_model(request.model)):
            return self._provider_of(model)
        run = rollout.started.run
        engine = await self._engines.take(run, rollout.engine, self._settings.request_seconds)
        try:
            await self._policies.ensure(run, engine)
        except BaseException:
            self._engines.give(engine)
            raise
        rollout.engine = engine.url
        return engine

    @property
    def cuts(self) -> Cuts:
        """What is asked of engines that may leave the service."""
        return self._engines.cuts

    def give(self, engine: Engine) -> None:
        """Give a place back."""
        if not isinstance(engine, Provider):
            self._engines.give(engine)

    def fails(self, engine: Engine, run: str) -> bool:
        """Note that an engine failed a call of this run; whether another that is well could answer it."""
        return not isinstance(engine, Provider) and self._engines.fails(engine, run)

    def _provider_of(self, model: str) -> Provider:
        if (url := self._settings.provider_url) is None:
            raise BadInputError(
                f"model {model!r}: expected a LiteLLM server for it, found none; 'agent-layer serve' and 'up' start"
                " one, or set AGENT_LAYER_PROVIDER_URL"
            )
        if model not in self._providers:
            self._providers[model] = Provider(
                url=url.rstrip("/").removesuffix("/v1"),
                run="",
                version=0,
                location=model,
                model=model,
                logprobs_mode="raw",
                state="serving",
                epoch=0,
                api_key=self._settings.provider_key,
            )
        return self._providers[model]
