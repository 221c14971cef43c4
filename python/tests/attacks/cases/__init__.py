"""Folders of attacks, one attack in each file."""
