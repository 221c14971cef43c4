"""Results of pools: futures, maps and the receivers of outcomes."""
