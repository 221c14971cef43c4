"""Worker processes: spawn, status page, signals and end. Pools and campaigns use it."""
