"""Traces of service events, made to order, for assembling, fitting and queueing."""

from papers.dssis.tracing.generator import LITERAL, Trace, TraceSettings, generate_trace

__all__ = ["LITERAL", "Trace", "TraceSettings", "generate_trace"]
