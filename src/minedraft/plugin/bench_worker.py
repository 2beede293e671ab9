"""One benchmark run in a process of its own: ``python -m minedraft.plugin.bench_worker``.

Owns engine, clock and request times of one run; what is run, and what the figures mean, is
minedraft.bench's business. Reads the resolved run as JSON on standard input.
"""
