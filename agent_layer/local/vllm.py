"""vLLM server as a child process: started, warmed up, and stopped with its parent."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self, TypeAlias

from agent_layer.engines import EngineControl, EngineReport
from agent_layer.errors import EngineError
from agent_layer.infra import SupervisedProcess, free_port, start_supervised
from agent_layer.local.parsers import Parsers, choose_parsers

Progress: TypeAlias = Callable[[float], None]
"""Receives the seconds waited so far, a few times a second."""

_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # opens pause, collective_rpc, reset_prefix_cache and resume
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

_FLAGS = (
    "--host=127.0.0.1",
    "--dtype=float32",  # bfloat16 is the default, and its log-probabilities differ from the trainer's
    "--enforce-eager",
    "--logprobs-mode=processed_logprobs",  # of the sampling distribution, temperature applied
    "--generation-config=vllm",  # no sampling defaults hidden in the model's directory
    "--disable-uvicorn-access-log",
    "--enable-prompt-tokens-details",  # how much of each prompt came from the prefix cache
)
_CPU_FLAGS = ("--no-enable-chunked-prefill",)
"""What an engine on CPUs needs beside: vLLM 0.31 ends at a prompt that it reads in parts and whose call has a seed,
since it cannot put a CPU generator back (``gpu_model_runner.py``, ``set_offset``). Told to read prompts whole, it sizes
its batches by the model's length itself."""

_CPU_ENVIRONMENT = {"TORCH_COMPILE_DISABLE": "1"}
"""No call needs the compiler beside ``--enforce-eager``, and to load it takes a fourth of a start."""

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Bounds that vLLM knows."""


@dataclass(kw_only=True)
class VllmServer:
    """One server on loopback, float32 on CPU unless ``arguments`` say otherwise (the last flag wins).

    ``start`` and ``wait`` are separate, so that other processes can start meanwhile; or use it as a context manager.
    """

    model: Path
    log: Path
    name: str = "policy"
    """Name of the served model."""
    max_model_len: int | None = None
    max_num_seqs: int = 96
    lora_rank: int | None = None
    """Largest rank of an adapter that it may be given; None: it takes whole weights alone."""
    tool_parser: str = "auto"
    """vLLM's parser of tool calls; 'auto': that of the model's family, 'none': requests with tools are refused."""
    reasoning_parser: str = "auto"
    """vLLM's parser of reasoning; 'auto': that of the model's family, 'none': reasoning stays text."""
    arguments: tuple[str, ...] = ()
    start_seconds: float = 300.0
    port: int = field(default_factory=free_port)
    _child: SupervisedProcess | None = None

    @property
    def url(self) -> str:
        """Return the address without /v1."""
        return f"http://127.0.0.1:{self.port}"

    @cached_property
    def parsers(self) -> Parsers:
        """Return what it will parse of its answers.

        Raises: BadInputError: the installed vLLM has no such parser.
        """
        return choose_parsers(self.model, self.tool_parser, self.reasoning_parser)

    @property
    def control(self) -> EngineControl:
        """Return the control client of this server."""
        return EngineControl(self.url)

    def start(self) -> SupervisedProcess:
        """Start the process; ``wait`` returns once it serves."""
        length = (f"--max-model-len={self.max_model_len}",) if self.max_model_len else ()
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={self.model}", *_FLAGS]
        command += _CPU_FLAGS if _is_for_cpus() else ()
        command += [f"--served-model-name={self.name}", f"--port={self.port}", f"--max-num-seqs={self.max_num_seqs}"]
        lora, environment = self._lora_options()
        environment = environment | (_CPU_ENVIRONMENT if _is_for_cpus() else {})
        flags = [*length, *lora, *self.parsers.flags, *self.arguments]
        self._child = start_supervised([*command, *flags], environment, self.log)
        return self._child

    def _lora_options(self) -> tuple[list[str], dict[str, str]]:
        """Return the flags for adapters, and the environment."""
        if self.lora_rank is None:
            return [], _ENVIRONMENT
        rank = next((rank for rank in _LORA_RANKS if rank >= self.lora_rank), _LORA_RANKS[-1])
        flags = ["--enable-lora", f"--max-lora-rank={rank}", "--max-loras=1"]
        return flags, _ENVIRONMENT | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}

    def wait(self, progress: Progress = lambda _: None) -> EngineReport:
        """Wait until it answers, then warm it up with one call (the first can take half a minute).

        Raises: EngineError: it died, timed out, or returns no token ids.
        """
        began = time.monotonic()
        while not self.control.is_healthy():
            waited = time.monotonic() - began
            progress(waited)
            if not (self._child and self._child.is_running and waited < self.start_seconds):
                log_tail = self._child.log_tail if self._child else "it was never started"
                raise EngineError(
                    f"vLLM with {self.model}: expected it to serve within {self.start_seconds:g} s, but after"
                    f" {waited:.0f} s it does not (a longer limit: AGENT_LAYER_ENGINE_SECONDS); see {self.log}, which"
                    f" ends: {log_tail}"
                )
            time.sleep(0.25)
        return self.control.probe()

    def stop(self) -> None:
        """End the server and its engine processes."""
        if self._child:
            self._child.stop()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_for_cpus() -> bool:
    """Whether the installed vLLM is built for CPUs, by the names that vLLM itself goes by."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return sys.platform == "darwin" or "cpu" in f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return False
