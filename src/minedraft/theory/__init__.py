"""The theory: the paper's model exactly, and closed forms of what every mode brings.

Pure arithmetic in the paper's symbols; docs/paper_map.md says which symbol is which.
"""

from minedraft.theory.acceptance import Acceptance
from minedraft.theory.break_even import (
    ScaledDraft,
    break_even_factors,
    gain,
    steady_of,
    winners,
)
from minedraft.theory.excess import excess, positive_root_of_excess
from minedraft.theory.frontier import (
    ExponentialFrontier,
    Frontier,
    TabulatedFrontier,
    parallel_optimum_ms,
    parallel_time_ms,
    sequential_time_ms,
)
from minedraft.theory.lead import Lead, hit_share, lead_of
from minedraft.theory.load import Load, Prompts, Steady
from minedraft.theory.recorded import acceptance_of
from minedraft.theory.steady import (
    CLOSED_FORMS,
    MAX_DRAFT_TOKENS,
    ClosedForm,
    NoneForm,
    PearlForm,
    SequentialForm,
    TwoBatchForm,
    WaitFreeForm,
    best_k,
)
from minedraft.theory.theorem import (
    CEILING,
    PEAK,
    PUBLISHED_RATIO,
    PUBLISHED_THRESHOLD,
    range_of_speedup,
    speedup,
)
from minedraft.theory.times import LinearTimes, PairTimes

__all__ = [
    "CEILING",
    "CLOSED_FORMS",
    "MAX_DRAFT_TOKENS",
    "PEAK",
    "PUBLISHED_RATIO",
    "PUBLISHED_THRESHOLD",
    "Acceptance",
    "ClosedForm",
    "ExponentialFrontier",
    "Frontier",
    "Lead",
    "LinearTimes",
    "Load",
    "NoneForm",
    "PairTimes",
    "PearlForm",
    "Prompts",
    "ScaledDraft",
    "SequentialForm",
    "Steady",
    "TabulatedFrontier",
    "TwoBatchForm",
    "WaitFreeForm",
    "acceptance_of",
    "best_k",
    "break_even_factors",
    "excess",
    "gain",
    "hit_share",
    "lead_of",
    "parallel_optimum_ms",
    "parallel_time_ms",
    "positive_root_of_excess",
    "range_of_speedup",
    "sequential_time_ms",
    "speedup",
    "steady_of",
    "winners",
]
