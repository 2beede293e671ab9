"""The profile of a pair: its measured points, their fits, and what can be asked of them.

Owns the fields of the file and their meaning; reading and writing are `files`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

import msgspec

from minedraft.bench.provenance import Provenance
from minedraft.emulation import LatencyModel
from minedraft.errors import ConfigError
from minedraft.profiles.fit import TimeFit, fit_linear, fit_times
from minedraft.profiles.points import Point
from minedraft.validation import check_choice, check_int, check_number, check_str

PROFILE_VERSION = 1
ROLES = ("target", "draft")
"""The models of a pair, as fields name them."""
EXTRAPOLATION = 2.0
"""How many times the largest measured size `ProfiledTimes` answers for."""
_MOST_MS = 60_000.0


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """A point and what the two fits say of it, in ms."""

    point: Point
    fit_ms: float
    linear_ms: float

    @property
    def fit_error(self) -> float:
        """Of the broken line, as a share of the measured time; above 0 if it says too much."""
        return self.fit_ms / self.point.median_ms - 1

    @property
    def linear_error(self) -> float:
        """The same of the linear model."""
        return self.linear_ms / self.point.median_ms - 1


class PassProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes of one model.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """

    points: tuple[Point, ...]
    fit: TimeFit
    linear: dict[str, float]
    """The table of a latency model, fitted to the same points."""

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError.bad_value("points", [], "at least one point")
        self.latency_model  # noqa: B018 - the table is checked where it enters

    @classmethod
    def of(cls, points: Sequence[Point]) -> Self:
        """The points with both fits.

        Raises:
            ConfigError: there is no point, or scipy is not installed.
        """
        return cls(points=tuple(points), fit=fit_times(points), linear=asdict(fit_linear(points)))

    @property
    def latency_model(self) -> LatencyModel:
        """The linear model."""
        return LatencyModel.from_mapping("linear", self.linear)

    @property
    def residuals(self) -> list[Residual]:
        """One for each point, in their order."""
        return [
            Residual(
                point=each,
                fit_ms=self.fit.pass_ms(each.num_tokens, each.num_requests, each.num_kv_tokens),
                linear_ms=self.latency_model.pass_ms(
                    each.num_tokens, each.num_requests, each.num_kv_tokens
                ),
            )
            for each in self.points
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounded:
    """A fit, asked only for sizes near those that were measured."""

    role: str
    passes: PassProfile
    context: float

    def pass_ms(self, num_requests: float, num_tokens: float) -> float:
        points = self.passes.points
        self._check("num_requests", num_requests, max(each.num_requests for each in points))
        self._check("num_tokens", num_tokens, max(each.num_tokens for each in points))
        return self.passes.fit.pass_ms(num_tokens, num_requests, num_requests * self.context)

    def _check(self, name: str, value: float, measured: float) -> None:
        # Half a request is a mean; a large size is a guess about what nobody saw.
        check_number(
            f"{self.role} {name} (measured to {measured:g})", value, 0.0, EXTRAPOLATION * measured
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledTimes:
    """t and V by the fits of a profile, with `context` tokens of each request in both caches.

    Sizes up to EXTRAPOLATION times the largest measured ones are answered, by the last slope;
    ConfigError beyond. Below the smallest measured number of tokens a pass takes no less time
    for fewer of them.
    """

    profile: Profile
    context: float

    def __post_init__(self) -> None:
        for role in ROLES:
            measured = max(each.context for each in self.profile.passes(role).points)
            allowed = EXTRAPOLATION * measured
            check_number(f"context (measured to {measured:g})", self.context, 0.0, allowed)

    def verify_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self._of("target").pass_ms(num_requests, num_tokens)

    def draft_pass_ms(self, num_requests: float, num_tokens: float) -> float:
        """See PairTimes."""
        return self._of("draft").pass_ms(num_requests, num_tokens)

    def _of(self, role: str) -> _Bounded:
        return _Bounded(role=role, passes=self.profile.passes(role), context=self.context)


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `minedraft profile` writes.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """

    version: int = PROFILE_VERSION
    target_model: str
    draft_model: str
    target_device: str
    draft_device: str
    num_target_devices: int
    """GPUs, or CPU cores, that the target ran on, as one."""
    num_draft_devices: int
    target_dtype: str
    draft_dtype: str
    overhead_ms: float
    """Median time from the end of a pass to the start of the next one without drafts."""
    round_trip_ms: float
    """What asking for drafts adds to it, their passes left out: the way to the drafter and back."""
    target: PassProfile
    """V."""
    draft: PassProfile
    """One draft pass: t is k of them."""
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.version != PROFILE_VERSION:
            raise ConfigError.bad_value("version", self.version, str(PROFILE_VERSION))
        for name in ("model", "device", "dtype"):
            for role in ROLES:
                check_str(f"{role}_{name}", getattr(self, f"{role}_{name}"))
        for role in ROLES:
            check_int(f"num_{role}_devices", self.num_devices(role), 1)
        check_number("overhead_ms", self.overhead_ms, 0.0, _MOST_MS)
        check_number("round_trip_ms", self.round_trip_ms, 0.0, _MOST_MS)

    def num_devices(self, role: str) -> int:
        """Those of `role`: target or draft; ConfigError otherwise."""
        check_choice("role", role, ROLES)
        return self.num_target_devices if role == "target" else self.num_draft_devices

    def passes(self, role: str) -> PassProfile:
        """Those of `role`: target or draft; ConfigError otherwise."""
        check_choice("role", role, ROLES)
        return self.target if role == "target" else self.draft

    def times(self, context: float) -> ProfiledTimes:
        """t and V with `context` tokens of each request in both KV caches; a PairTimes.

        Raises:
            ConfigError: `context` is more than EXTRAPOLATION times what was measured.
        """
        return ProfiledTimes(profile=self, context=context)

    def latency_model(self, role: str) -> LatencyModel:
        """The linear model of `role`, target or draft, for emulation."""
        return self.passes(role).latency_model
