"""One drafted request: its sequence, its commits, and KV that never outlives its token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minedraft.drafter import DraftedRequest, Row
from minedraft.transport.messages import Sampling

TOKEN = st.integers(0, 2)
TOKENS = st.lists(TOKEN, max_size=8)


def _request(committed: list[int], guesses: list[int], num_computed: int) -> DraftedRequest:
    return DraftedRequest(
        request_id="r",
        version=1,
        order=1,
        committed=list(committed),
        guesses=list(guesses),
        num_computed=num_computed,
    )


@given(st.lists(TOKEN, min_size=1, max_size=8), TOKENS, TOKENS, st.data())
def test_commit_against_brute_force(
    committed: list[int], guesses: list[int], tokens: list[int], data: st.DataObject
) -> None:
    sequence = [*committed, *guesses]
    computed = data.draw(st.integers(0, len(sequence) - 1))
    request = _request(committed, guesses, computed)
    request.num_sent = len(guesses)
    request.commit(list(tokens))

    truth = [*committed, *tokens]
    assert request.committed == truth
    after = [*request.committed, *request.guesses]
    assert after[: request.num_computed] == sequence[: request.num_computed], "KV of old tokens"
    assert request.num_computed <= computed
    assert request.num_computed < request.length
    assert request.length == len(after)
    if sequence[: len(truth)] == truth:
        assert request.guesses == sequence[len(truth) :], "guesses that may hold stay"
    else:
        assert request.guesses == []
    same = 0
    while same < min(len(after), len(sequence)) and after[same] == sequence[same]:
        same += 1
    if request.guesses == [] and tokens:
        assert request.num_computed == min(computed, same, request.length - 1), "KV thrown away"
    assert request.num_sent == (0 if tokens else len(guesses))
    assert request.edits == (after != sequence)


def test_guesses_that_stay_keep_their_kv() -> None:
    request = _request([1, 2, 3], [4, 5, 6, 7], 6)
    request.commit([4])
    assert request.guesses == [5, 6, 7]
    assert request.num_missing == 1


@given(st.lists(TOKEN, min_size=1, max_size=6), TOKENS, st.integers(0, 15), st.integers(0, 15))
def test_tokens_is_a_slice_of_the_sequence(
    committed: list[int], guesses: list[int], start: int, end: int
) -> None:
    request = _request(committed, guesses, 0)
    assert request.tokens(start, end) == [*committed, *guesses][start:end]
    assert request.length == len(committed) + len(guesses)
    assert request.num_missing == request.length


def test_forget_kv_keeps_the_committed_tokens_only() -> None:
    request = _request([1, 2], [3], 2)
    request.forget_kv()
    assert (request.committed, request.guesses, request.num_computed) == ([1, 2], [], 0)


def test_key_names_one_life() -> None:
    request = _request([1], [], 0)
    assert request.key == "r@1"


def test_row() -> None:
    request = _request([1, 2, 3], [4], 1)
    row = Row(request=request, start=1, end=3)
    assert (row.num_tokens, row.is_last) == (2, False)
    assert Row(request=request, start=1, end=4).is_last


@given(
    guesses=st.lists(st.integers(0, 2), max_size=5), tokens=st.lists(st.integers(0, 2), max_size=6)
)
def test_what_guesses_were_drawn_from_stays_with_them(
    guesses: list[int], tokens: list[int]
) -> None:
    request = DraftedRequest(
        request_id="r", version=1, order=1, committed=[0], sampling=Sampling(1.0)
    )
    for guess in guesses:
        request.add_guess(guess, bytes([guess] * 4), bytes([guess] * 4))
    request.commit(tokens)
    assert request.drawn_from == [(bytes([each] * 4),) * 2 for each in request.guesses]
    candidates = request.candidates(len(request.guesses))
    assert (candidates is None) == (not request.guesses)
    if candidates is not None:
        assert candidates.width == 1
        assert candidates.token_ids == bytes(each for each in request.guesses for _ in range(4))


def test_certain_guesses_have_no_candidates() -> None:
    request = DraftedRequest(request_id="r", version=1, order=1, committed=[0])
    request.add_guess(3, b"", b"")
    assert request.candidates(1) is None


@given(st.lists(TOKEN, min_size=1, max_size=8), TOKENS, TOKENS)
def test_heads_that_guess_from_the_last_commit_begin_anew(
    committed: list[int], guesses: list[int], tokens: list[int]
) -> None:
    """Guesses that are left agree with the target, but newer ones know more."""
    request = _request(committed, guesses, len(committed) - 1)
    request.renews_guesses = True
    request.commit(list(tokens))
    assert request.committed == [*committed, *tokens]
    assert request.guesses == ([] if tokens else guesses)
    assert request.num_missing >= 1
