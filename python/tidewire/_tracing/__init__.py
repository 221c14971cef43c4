"""Spans of calls, handlers and messages, for OpenTelemetry and for the console."""
