"""Caller side of services: clients, calls, retries and balancing."""
