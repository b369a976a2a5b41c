"""A scripted engine: answers like vLLM, needs no model."""
