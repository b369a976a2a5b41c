"""Ingest: spans that other instrumentations send over OTLP become steps, with the level that they allow."""
