"""Seeds of requests whose prompt is taken in piece by piece, on devices such as CPUs.

Owns the generators of these requests while vLLM samples; it draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_seeds(runner: Any) -> Iterator[None]:
    """Within the context, generators of requests whose prompt is not over stay untouched.

    vLLM 0.32 draws a token for such a request too, drops it, and winds the request's
    generator back by its offset. A CPU's generator has no offset, and the error ends the
    engine. Without its generator the row is drawn like one without a seed, and dropped all
    the same. This can go when vLLM leaves such rows alone.
    """
    batch = runner.input_batch
    is_partial = runner.discard_request_mask.np[: batch.num_reqs]
    generators = batch.generators
    kept = {at: generators.pop(at) for at in list(generators) if is_partial[at]}
    try:
        yield
    finally:
        generators.update(kept)
