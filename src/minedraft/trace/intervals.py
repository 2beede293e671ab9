"""Exact arithmetic on lists of time intervals.

Owns union, length and intersection; it knows nothing of steps or drafts. An
interval is ``(start, end)`` with ``start <= end``, in whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the covered time as disjoint intervals in rising order, no empty ones."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(disjoint: Iterable[Interval]) -> int:
    """Return the total length of intervals that do not overlap."""
    return sum(end - start for start, end in disjoint)


def common_length(one: list[Interval], other: list[Interval]) -> int:
    """Return for how long two results of ``union`` both cover the time."""
    total = i = j = 0
    while i < len(one) and j < len(other):
        start = max(one[i][0], other[j][0])
        end = min(one[i][1], other[j][1])
        total += max(0, end - start)
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return total


def covered_fraction(intervals: Iterable[Interval], by: Iterable[Interval]) -> float | None:
    """Return the share of the first union's length that the second covers.

    None if the first has no length.
    """
    wanted = union(intervals)
    total = length(wanted)
    return common_length(wanted, union(by)) / total if total else None
