"""Propagation of a rollout to another process: in the headers of a request, or in an environment."""

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager

from agent_layer.schema import ROLLOUT_HEADER, RUN_HEADER, check_name, parse_trace, split_trajectory_id
from agent_layer.settings import Settings
from tracer.core import Rollout, active_trace, current_scope, new_trace, write_trace
from tracer.credentials import replace_credentials
from tracer.rollouts import enter_rollout
from tracer.session import active_session
from tracer.transport import rollout_from_environment

_ROLLOUT_VARIABLE = "AGENT_LAYER_ROLLOUT"
OPERATOR_VARIABLES = frozenset({"AGENT_LAYER_API_KEY", "AGENT_LAYER_FORMER_API_KEYS", "AGENT_LAYER_GATEWAY_URL"})
"""Variables with which a program could open rollouts, and judge those of others."""


def inject(carrier: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Add the current rollout to headers, or to the environment of a new process; return them.

    Outside a rollout nothing is added. A mapping with a PATH is an environment: it gets the address and key of the
    rollout, so that programs without a tracer continue the rollout too. Headers never carry a key: a service that calls
    the model for this rollout has its own key of the gateway.
    """
    scope = current_scope()
    if scope is not None and "PATH" in carrier:
        entered = enter_environment(carrier, scope.rollout) | log_variables(active_session().settings)
        for name in carrier.keys() - entered.keys():
            del carrier[name]
        carrier.update(entered)
    elif scope is not None:
        carrier.update(_rollout_headers(scope.rollout))
    return carrier


def enter_environment(variables: Mapping[str, str], rollout: Rollout) -> dict[str, str]:
    """Return the environment of a program that continues an attempt: all that it calls is the attempt's model."""
    if rollout.base_url is not None and rollout.api_key is not None:
        variables = replace_credentials(variables, rollout.base_url, rollout.api_key)
    return {**variables, **rollout_variables(rollout)}


def rollout_variables(rollout: Rollout) -> dict[str, str]:
    """Return the environment variables that describe an attempt."""
    variables = {
        _ROLLOUT_VARIABLE: rollout.rollout_id,
        "AGENT_LAYER_ATTEMPT": str(rollout.attempt),
        "AGENT_LAYER_RUN": rollout.run,
        **{name.upper(): value for name, value in _trace_headers(rollout).items()},
    }
    if rollout.base_url is None or rollout.api_key is None:
        return variables
    return variables | {
        "OPENAI_BASE_URL": rollout.base_url,
        "OPENAI_API_BASE": rollout.base_url,  # LlamaIndex and older LiteLLM read only this name
        "OPENAI_API_KEY": rollout.api_key,
        "ANTHROPIC_BASE_URL": rollout.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": rollout.api_key,
        "GOOGLE_GEMINI_BASE_URL": rollout.base_url.removesuffix("/v1"),
        "GEMINI_API_KEY": rollout.api_key,
    }


def log_variables(settings: Settings) -> dict[str, str]:
    """Return the variables with which a process records into the log directory of these settings."""
    return {name: value for name, value in settings.environment().items() if name not in OPERATOR_VARIABLES}


def _rollout_headers(rollout: Rollout) -> dict[str, str]:
    return {ROLLOUT_HEADER: rollout.trajectory_id, RUN_HEADER: rollout.run, **_trace_headers(rollout)}


def _trace_headers(rollout: Rollout) -> dict[str, str]:
    """Return the trace headers: below the active span of the agent, else below the span of the attempt."""
    headers, around = dict[str, str](), active_trace()
    is_inside = around is not None and around.trace_id == rollout.trace_id and around != rollout.trace
    above = around.span_id if around and is_inside else None
    write_trace(headers, rollout.trace, above or rollout.span_id)
    return headers


@contextmanager
def extract(carrier: Mapping[str, str]) -> Generator[Rollout | None]:
    """Context manager: run the block in the rollout that headers or an environment name, if any.

    Raises: BadInputError: the name is not that of a rollout.
    """
    rollout = _from_environment(carrier) if _ROLLOUT_VARIABLE in carrier else _from_headers(carrier)
    if rollout is None:
        yield None
        return
    with enter_rollout(rollout):
        yield rollout


def _from_environment(variables: Mapping[str, str]) -> Rollout | None:
    session = active_session()
    rollout = rollout_from_environment(session.settings, variables)
    inherited = session.inherited
    return inherited if rollout and inherited and inherited.trajectory_id == rollout.trajectory_id else rollout


def _from_headers(headers: Mapping[str, str]) -> Rollout | None:
    named = {name.lower(): value for name, value in headers.items()}
    trajectory_id = named.get(ROLLOUT_HEADER)
    if trajectory_id is None:
        return None
    rollout_id, attempt = split_trajectory_id(check_name(trajectory_id, "rollout"))
    session = active_session()
    gateway = session.gateway
    return Rollout(
        trajectory_id=trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=check_name(named.get(RUN_HEADER, session.settings.run), "run"),
        sink=session.sink,
        base_url=gateway and f"{gateway.url}/v1",
        api_key=session.settings.api_key,
        trace=parse_trace(named) or new_trace(),
    )
