"""Owns the package version, read here by the build and by `minedraft --version`; nothing else."""

__version__ = "0.1.0"
