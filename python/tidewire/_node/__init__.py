"""Parts of a node, one module for each group of methods."""
