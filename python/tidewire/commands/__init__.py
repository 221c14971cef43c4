"""Commands of ``tidewire`` that talk to a hub."""
