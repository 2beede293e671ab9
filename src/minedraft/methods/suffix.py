"""Suffix decoding: what followed the last tokens in this request and in those before it.

The trees are Arctic Inference's (`arctic_inference.suffix_decoding.SuffixDecodingCache`), as in
vLLM's method `suffix`. Source: Oliaro et al., SuffixDecoding, arXiv 2411.04975.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minedraft.errors import ConfigError
from minedraft.methods.base import Needs, Surroundings, Text
from minedraft.validation import check_int, check_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixOptions:
    """Names, meaning and defaults are vLLM's; lengths in tokens."""

    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1

    def __post_init__(self) -> None:
        for name, low, high in (("max_tree_depth", 1, 1024), ("max_cached_requests", 0, 10**7)):
            name = f"suffix_decoding_{name}"
            check_int(f"draft_options.{name}", getattr(self, name), low, high)
        for name, most in (("max_spec_factor", 1e6), ("min_token_prob", 1.0)):
            name = f"suffix_decoding_{name}"
            check_number(f"draft_options.{name}", getattr(self, name), 0.0, most)


class SuffixDrafter:
    """Suffix trees of each request, and of those that ended.

    Raises:
        ConfigError: arctic-inference is not installed.
    """

    def __init__(self, surroundings: Surroundings, options: SuffixOptions) -> None:
        self._options = options
        self._max_model_len = surroundings.max_model_len
        self._cache = _new_cache(options)
        self._lengths: dict[str, int] = {}

    def needs(self) -> Needs:
        """Tokens alone."""
        return Needs.TOKENS

    def draft(self, texts: Sequence[Text]) -> list[list[int]]:
        """See Drafter.draft."""
        return [self._draft(text) for text in texts]

    def roll_back(self, request_id: str, length: int) -> None:
        """Nothing to do: the trees are given what is decided."""

    def release(self, request_id: str) -> None:
        """The request's output stays in the tree of those that ended."""
        if self._lengths.pop(request_id, None) is not None:
            self._cache.stop_request(request_id)

    def _draft(self, text: Text) -> list[int]:
        self._take_in(text)
        wanted = min(text.num_wanted, self._max_model_len - text.length - 1)
        if wanted <= 0:
            return []
        depth = self._options.suffix_decoding_max_tree_depth
        draft = self._cache.speculate(
            text.request_id,
            text.last(depth),
            max_spec_tokens=wanted,
            max_spec_factor=self._options.suffix_decoding_max_spec_factor,
            min_token_prob=self._options.suffix_decoding_min_token_prob,
        )
        return list(draft.token_ids)

    def _take_in(self, text: Text) -> None:
        """Give the trees what the target decided since."""
        known = self._lengths.get(text.request_id)
        if known is None:
            known = text.num_prompt
            self._cache.start_request(text.request_id, list(text.committed[:known]))
        if new := list(text.committed[known:]):
            self._cache.add_active_response(text.request_id, new)
        self._lengths[text.request_id] = len(text.committed)


def _new_cache(options: SuffixOptions) -> Any:
    try:
        from arctic_inference.suffix_decoding import SuffixDecodingCache
    except ImportError as error:
        raise ConfigError(
            f"minedraft: draft_method 'suffix' needs Arctic Inference ({error}); install "
            "arctic-inference, as for vLLM's own"
        ) from error
    return SuffixDecodingCache(
        max_tree_depth=options.suffix_decoding_max_tree_depth,
        max_cached_requests=options.suffix_decoding_max_cached_requests,
    )
