"""Hubs that have joined, or were joined."""
