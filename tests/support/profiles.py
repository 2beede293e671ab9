"""Profiles made by hand, of devices whose times are known."""

from __future__ import annotations

from typing import Any

from bench_runs import PROVENANCE
from minedraft.emulation import LatencyModel
from minedraft.profiles import PassProfile, Point, Profile

TARGET = LatencyModel(fixed_ms=30.0, per_token_ms=0.5, per_request_ms=1.0, per_kv_token_ms=0.002)
DRAFT = LatencyModel(fixed_ms=3.0, per_token_ms=0.05, per_request_ms=0.1, per_kv_token_ms=0.0005)
SIZES = [
    (b, b * tokens, context) for b in (1, 2, 4, 8) for tokens in (1, 3, 5) for context in (128, 512)
] + [(1, 128, 128), (2, 256, 128), (1, 512, 512)]


def point(num_requests: float, num_tokens: float, context: float, ms: float, **more: Any) -> Point:
    """A point that was always the same."""
    values = {"median_ms": ms, "low_ms": ms, "high_ms": ms, "num_samples": 9, **more}
    return Point(num_requests=num_requests, num_tokens=num_tokens, context=context, **values)


def points_of(model: LatencyModel) -> list[Point]:
    """Points of a device that is as linear as `model`."""
    return [point(b, n, c, model.pass_ms(n, b, b * c)) for b, n, c in SIZES]


def make_profile(**changes: Any) -> Profile:
    """A profile of two linear devices."""
    fields = {
        "target_model": "T",
        "draft_model": "D",
        "target_device": "1 x CPU core",
        "draft_device": "cpu:1",
        "num_target_devices": 1,
        "num_draft_devices": 1,
        "target_dtype": "float32",
        "draft_dtype": "float32",
        "overhead_ms": 1.5,
        "round_trip_ms": 0.4,
        "target": PassProfile.of(points_of(TARGET)),
        "draft": PassProfile.of(points_of(DRAFT)),
        "provenance": PROVENANCE,
    }
    return Profile(**{**fields, **changes})
