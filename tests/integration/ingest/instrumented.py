"""An agent under a foreign instrumentation: ``python instrumented.py NAME ENGINE_URL OTLP_URL KEY``.

test_instrumentations.py runs it in a process of its own, because instrumentations cannot be undone in a process.
Checked with openinference-instrumentation-openai 0.1.66, opentelemetry-instrumentation-openai 0.62.4 (OpenLLMetry) and
opentelemetry-instrumentation-openai-v2 2.4b0 (GenAI conventions), each against openai 2.54.
"""

import os
import sys
from importlib import import_module

import openai
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODULES = {
    "openinference": "openinference.instrumentation.openai",
    "openllmetry": "opentelemetry.instrumentation.openai",
    "genai": "opentelemetry.instrumentation.openai_v2",
}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}}}]


def main(name, engine_url, otlp_url, key):
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    exporter = OTLPSpanExporter(
        endpoint=f"{otlp_url}/v1/traces", headers={"x-api-key": key}, compression=Compression.Gzip
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    import_module(MODULES[name]).OpenAIInstrumentor().instrument(tracer_provider=provider)
    with provider.get_tracer("agent").start_as_current_span("run"):
        talk(openai.OpenAI(base_url=f"{engine_url}/v1", api_key="none", max_retries=0))
    provider.shutdown()


def talk(client):
    create = client.chat.completions.create
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what"}]
    answer = create(model="scripted", messages=messages, tools=TOOLS, temperature=0.5, max_tokens=7)
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": "c1", "content": "found it"})
    create(model="scripted", messages=messages, n=2)
    for _ in create(model="scripted", messages=messages, stream=True):
        pass
    try:
        create(model="nobody", messages=messages)
    except openai.NotFoundError:
        return
    raise AssertionError("the engine knows no such model")


if __name__ == "__main__":
    main(*sys.argv[1:])
