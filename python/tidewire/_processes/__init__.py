"""Worker processes of pools and campaigns: spawn, status page, signals and end."""
