"""Event loops, threads, waits, forks and signals: the ground that handlers run on."""
