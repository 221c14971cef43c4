"""The parts of a node, by what they are for."""
