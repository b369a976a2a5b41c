"""An agent under our tracer and another instrumentation at once.

``python twice_traced.py ENGINE_URL OTLP_URL KEY RECORDS`` writes what our tracer recorded to the file RECORDS.
"""

import sys
from pathlib import Path

import msgspec
import openai
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tracer
from agent_layer.schema.codec import encode
from tracer.integrations.otel import RolloutSpans


def main(engine_url, otlp_url, key, records):
    provider = TracerProvider()
    provider.add_span_processor(RolloutSpans())
    exporter = OTLPSpanExporter(endpoint=f"{otlp_url}/v1/traces", headers={"x-api-key": key})
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer.instrument()
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    client = openai.OpenAI(base_url=f"{engine_url}/v1", api_key="none")
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for question in ("one", "two"):
            client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": question}])
    provider.shutdown()
    Path(records).write_bytes(msgspec.msgpack.encode([encode(record) for record in captured.records]))


if __name__ == "__main__":
    main(*sys.argv[1:])
