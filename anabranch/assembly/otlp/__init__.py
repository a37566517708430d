"""OpenTelemetry's messages of spans (OTLP), protobuf and JSON, to one row per span."""
