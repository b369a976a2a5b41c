"""Other projects' ways to capture a call, for the benchmark; runs in the peers' environment."""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import openai
from capture_child import Ask, Capturing, Messages, asking
from openai.resources.chat.completions import Completions
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def otel_json(directory: Path, client: openai.OpenAI) -> Capturing:
    """An OpenTelemetry span with the messages as JSON, written by hand."""
    tracer, ask = _provider(directory).get_tracer("bench"), asking(client)

    def traced(messages: Messages) -> object:
        with tracer.start_as_current_span("chat policy") as span:
            span.set_attribute("gen_ai.input.messages", json.dumps(messages))
            answer = ask(messages)
            span.set_attribute("gen_ai.output.messages", answer.model_dump_json())
            return answer

    @contextmanager
    def capturing() -> Iterator[Ask]:
        yield traced

    return capturing


def instrumented(module: str, directory: Path, client: openai.OpenAI) -> Capturing:
    """An OpenTelemetry instrumentation of the openai client."""
    instrumentor, provider = importlib.import_module(module).OpenAIInstrumentor(), _provider(directory)
    return _patched(client, partial(instrumentor.instrument, tracer_provider=provider))


def langfuse(directory: Path, client: openai.OpenAI) -> Capturing:
    """Langfuse's wrapper of the openai client; its spans go where those of the others go."""
    address = {"public_key": "pk", "secret_key": "sk", "base_url": "http://127.0.0.1:9"}
    importlib.import_module("langfuse").Langfuse(**address, span_exporter=_exporter(directory))
    return _patched(client, partial(importlib.import_module, "langfuse.openai"))


def _patched(client: openai.OpenAI, patch: Callable[[], object]) -> Capturing:
    """Let the patch hold within the block only."""
    places = [(openai.OpenAI, "request"), (Completions, "create")]
    before = [getattr(owner, name) for owner, name in places]
    patch()
    after = [getattr(owner, name) for owner, name in places]

    def put(functions: list[object]) -> None:
        for (owner, name), function in zip(places, functions, strict=True):
            setattr(owner, name, function)

    @contextmanager
    def capturing() -> Iterator[Ask]:
        put(after)
        try:
            yield asking(client)
        finally:
            put(before)

    put(before)
    return capturing


def _provider(directory: Path) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_exporter(directory)))
    return provider


def _exporter(directory: Path) -> ConsoleSpanExporter:
    """Spans as lines of JSON in a file, from the processor's own thread."""
    lines = (directory / "spans.jsonl").open("w")
    return ConsoleSpanExporter(out=lines, formatter=lambda span: span.to_json(indent=None) + "\n")


VARIANTS: dict[str, Callable[[Path, openai.OpenAI], Capturing]] = {
    "otel_json": otel_json,
    "openinference": partial(instrumented, "openinference.instrumentation.openai"),
    "openllmetry": partial(instrumented, "opentelemetry.instrumentation.openai"),
    "langfuse": langfuse,
}
