"""All tables over the settings of a benchmark (Hwang et al. 2024, Tables 1-6), in their order."""

from __future__ import annotations

from dgbench.analysis import Statistics
from dgbench.reports.measuring.benchmark_certainty import (
    benchmark_interval_table,
    benchmark_rank_table,
)
from dgbench.reports.measuring.benchmarks import Benchmark
from dgbench.reports.measuring.beside_paper import benchmark_published_tables
from dgbench.reports.measuring.choices import (
    benchmark_hit_table,
    benchmark_selection_table,
)
from dgbench.reports.measuring.correlations import (
    benchmark_correlation_table,
    benchmark_seed_table,
)
from dgbench.reports.tables import Table


def benchmark_tables(benchmark: Benchmark, statistics: Statistics) -> list[Table]:
    """Build all tables of one benchmark, those to read first in front."""
    return [
        benchmark_rank_table(benchmark),
        benchmark_hit_table(benchmark),
        benchmark_selection_table(benchmark),
        benchmark_correlation_table(benchmark),
        benchmark_interval_table(benchmark, statistics),
        *benchmark_published_tables(benchmark),
        benchmark_seed_table(benchmark),
    ]
