"""Worker processes of pools: their program, their connection and their health."""
