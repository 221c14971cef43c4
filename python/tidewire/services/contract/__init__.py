"""Contracts of services: declarations, methods, names, type hints and schemas."""
