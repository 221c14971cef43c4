"""Server side of services: served instances, and the run of their handlers."""
