"""Benchmarks: ``tidewire bench engine`` runs the engine and its peers under the same workloads."""
