"""Floods of frames and requests."""
