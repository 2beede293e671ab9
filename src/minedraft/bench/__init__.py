"""Benchmarks: what is asked, when it is asked, and what the answers' times mean.

Owns the public names of the package; it starts no engine.
"""
