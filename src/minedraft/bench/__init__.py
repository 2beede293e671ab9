"""Benchmarks: experiments from TOML files, results with provenance, reports and comparisons.

Owns nothing itself, the modules do; engines are run by ``minedraft.plugin.bench_worker``.
"""
