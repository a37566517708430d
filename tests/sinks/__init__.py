"""Exactly-once sinks."""
