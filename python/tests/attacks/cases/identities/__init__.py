"""Names, tokens and permissions of others."""
