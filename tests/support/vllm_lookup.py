"""vLLM's own prompt lookup, in a process of its own: its module cannot be imported into one that
forks engines later (vLLM looks for kernels in all that is imported, and trips over Numba's).

``python vllm_lookup.py`` reads lines [tokens, min, max, k] and prints the drafts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Sequence

MAX_MODEL_LEN = 1024


def lookups(questions: Sequence[tuple[list[int], int, int, int]]) -> list[list[int]]:
    """The drafts for texts, by the shortest and longest n-gram and k."""
    done = subprocess.run(
        [sys.executable, __file__],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def main() -> None:
    """Answer all of standard input."""
    warnings.simplefilter("ignore")
    import numpy as np
    from vllm.v1.spec_decode.ngram_proposer import _find_longest_matched_ngram_and_propose_tokens

    for line in sys.stdin:
        tokens, shortest, longest, k = json.loads(line)
        draft = _find_longest_matched_ngram_and_propose_tokens(
            origin_tokens=np.array(tokens, dtype=np.int32),
            min_ngram=shortest,
            max_ngram=longest,
            max_model_len=MAX_MODEL_LEN,
            k=k,
        )
        print(json.dumps(draft.tolist()))


if __name__ == "__main__":
    main()
