"""Measured times of a pair: V and t by the size of a pass, as a file, a fit and its residuals.

Measures nothing itself: `minedraft profile` does (docs/profiles.md).
"""

from minedraft.profiles.files import read_profile, write_profile
from minedraft.profiles.fit import TimeFit, fit_linear, fit_times, require_scipy
from minedraft.profiles.gather import Cell, Sample, Samples, gather, to_points
from minedraft.profiles.points import Point
from minedraft.profiles.profile import (
    EXTRAPOLATION,
    PROFILE_VERSION,
    ROLES,
    PassProfile,
    Profile,
    ProfiledTimes,
    Residual,
)

__all__ = [
    "EXTRAPOLATION",
    "PROFILE_VERSION",
    "ROLES",
    "Cell",
    "PassProfile",
    "Point",
    "Profile",
    "ProfiledTimes",
    "Residual",
    "Sample",
    "Samples",
    "TimeFit",
    "fit_linear",
    "fit_times",
    "gather",
    "read_profile",
    "require_scipy",
    "to_points",
    "write_profile",
]
