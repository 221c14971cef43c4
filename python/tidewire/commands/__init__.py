"""What the commands of ``tidewire`` do that talk to a hub."""
