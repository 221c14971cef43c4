"""Attacks over HTTP."""
