"""Memory, connections and time of the hub."""
