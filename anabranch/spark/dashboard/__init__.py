"""The live page of running queries, and their figures for Prometheus and OpenTelemetry."""
