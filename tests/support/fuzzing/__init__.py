"""Whole runs drawn from seeds, compared with plain decoding; `python -m fuzzing` runs them.

Owns plans, runs, verdicts and their shrinking; the tests that use them are in `tests/fuzz`.
"""
