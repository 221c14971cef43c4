"""Campaigns: seeded runs of a function over many workers, leased in ranges, each stored once."""
