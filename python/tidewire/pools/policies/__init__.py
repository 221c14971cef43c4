"""Policies of pools as state machines: batch sizes, restarts and scaling."""
