"""One attack each."""
