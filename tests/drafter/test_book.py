"""The book's promises one by one: chunks, full pools, leads, and who waits for whom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minedraft.drafter import DraftBook
from minedraft.transport.messages import Add, Commit, Drafts, Guesses, Update, Want

K = 4
Greedy = Callable[[list[int], int], list[int]]
Serve = Callable[..., list[Drafts]]
Drain = Callable[..., int]


def _prompt(length: int, salt: int = 0) -> list[int]:
    return [(salt + place) % 7 for place in range(length)]


def _add(name: str, tokens: list[int], version: int = 1) -> Update:
    return Update(adds=[Add(name, version, tokens)])


def _want(*names: str, ticket: int = 1, may_wait: bool = True, lead: int = 0) -> Update:
    want = Want(ticket=ticket, request_ids=list(names), num_tokens=K, may_wait=may_wait, lead=lead)
    return Update(wants=[want])


def _tokens(answer: Drafts) -> dict[str, list[int]]:
    return {draft.request_id: draft.token_ids for draft in answer.drafts}


# -- steady drafting -----------------------------------------------------------------


def test_prompt_then_one_ragged_pass_and_single_tokens(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, drain: Drain
) -> None:
    device = toy_device()
    book = DraftBook(device)
    a, b = _prompt(9), _prompt(5, 3)
    serve(book, device, [_add("a", a), _add("b", b)])
    assert device.passes == [{"a@1": (0, 9), "b@1": (0, 5)}], "prompts are not put off"
    device.passes.clear()
    (answer,) = serve(book, device, [_want("a", "b")])
    assert _tokens(answer) == {"a": toy_greedy(a, K), "b": toy_greedy(b, K)}
    assert answer.num_passes == len(device.passes) == K - 1, "the prompt gave the first guess"


@pytest.mark.parametrize(
    ("accepted", "first_row"), [(0, 1), (2, 1), (K, 2)], ids=["none", "some", "all and bonus"]
)
def test_catch_up_after_a_commit(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, accepted: int, first_row: int
) -> None:
    """One token after a rejection; two after all were accepted: the last draft and the bonus."""
    device = toy_device()
    book = DraftBook(device)
    prompt = _prompt(6)
    serve(book, device, [_add("a", prompt), _want("a")])
    device.passes.clear()
    new = toy_greedy(prompt, accepted + 1)
    new[-1] += 0 if accepted == K else 1
    commit = Update(commits=[Commit("a", 1, len(prompt), new)])
    (answer,) = serve(book, device, [commit, _want("a", ticket=2)])
    assert _tokens(answer) == {"a": toy_greedy([*prompt, *new], K)}
    start, end = device.passes[0]["a@1"]
    assert end == len(prompt) + len(new)
    assert end - start == first_row
    assert all(stop - begin == 1 for each in device.passes[1:] for begin, stop in each.values())
    assert len(device.passes) == K


def test_a_request_may_be_drafted_again_without_news(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device()
    book = DraftBook(device)
    (first,) = serve(book, device, [_add("a", _prompt(6)), _want("a")])
    num = len(device.passes)
    (again,) = serve(book, device, [_want("a", ticket=2)])
    assert _tokens(again) == _tokens(first) == {"a": toy_greedy(_prompt(6), K)}
    assert len(device.passes) == num


def test_tickets_are_served_in_their_order(toy_device: Any, serve: Serve) -> None:
    device = toy_device()
    book = DraftBook(device)
    updates = [_add(name, _prompt(4, place)) for place, name in enumerate("abc")]
    answers = serve(
        book, device, [*updates, *(_want(each, ticket=at) for at, each in enumerate("bca"))]
    )
    assert [answer.ticket for answer in answers] == [0, 1, 2]
    assert [list(_tokens(answer)) for answer in answers] == [["b"], ["c"], ["a"]]


def test_a_ticket_of_nobody_is_answered(toy_device: Any, serve: Serve) -> None:
    device = toy_device()
    (answer,) = serve(DraftBook(device), device, [_want("unknown")])
    assert (answer.ticket, answer.drafts, answer.num_passes) == (1, [], 0)


def test_times_of_an_answer_span_its_passes(toy_device: Any) -> None:
    device = toy_device()
    book = DraftBook(device)
    book.apply(_add("a", _prompt(4)), 5)
    book.apply(_want("a"), 10)
    for number in range(K):
        rows = book.next_pass(100 + 10 * number)
        book.record(rows, device.run(rows), 105 + 10 * number)
    (answer,) = book.take_answers()
    assert (answer.start_ns, answer.end_ns, answer.num_passes) == (100, 135, K)
    assert book.take_answers() == []


def test_prefixes_in_the_cache_are_not_computed_again(toy_device: Any, serve: Serve) -> None:
    device = toy_device(prefix_caching=True, block_size=4)
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(10)), Update(releases=[("a", 1)])])
    serve(book, device, [_add("b", _prompt(10))])
    serve(book, device, [Update(releases=[("b", 1)])])
    device.passes.clear()
    serve(book, device, [_add("c", _prompt(10))])
    assert device.passes[0]["c@1"][0] == 8


# -- the end of the context ----------------------------------------------------------


@pytest.mark.parametrize("room", [-3, 0, 1, 2, K, K + 1])
def test_no_draft_beyond_the_context(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, room: int
) -> None:
    device = toy_device(max_model_len=20)
    book = DraftBook(device)
    prompt = _prompt(20 - room)
    (answer,) = serve(book, device, [_add("a", prompt), _want("a", lead=K + 1)])
    assert _tokens(answer) == {"a": toy_greedy(prompt, max(0, min(room, K)))}
    assert max((end for each in device.passes for _, end in each.values()), default=0) <= 20


# -- prompts -------------------------------------------------------------------------


def test_long_prompts_come_in_chunks(toy_device: Any, toy_greedy: Greedy, serve: Serve) -> None:
    device = toy_device(max_num_batched_tokens=8)
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(20))])
    assert device.passes == [{"a@1": (0, 8)}, {"a@1": (8, 16)}, {"a@1": (16, 20)}]
    (answer,) = serve(book, device, [_want("a")])
    assert _tokens(answer) == {"a": toy_greedy(_prompt(20), K)}


def test_a_ticket_of_long_prompts_only_is_drafted_after_its_chunks(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(max_num_batched_tokens=8)
    (answer,) = serve(DraftBook(device), device, [_add("a", _prompt(20)), _want("a")])
    assert _tokens(answer) == {"a": toy_greedy(_prompt(20), K)}


def test_many_prompts_share_the_budget_oldest_first(toy_device: Any, serve: Serve) -> None:
    device = toy_device(max_num_batched_tokens=8)
    updates = [_add(name, _prompt(6, place)) for place, name in enumerate("abc")]
    serve(DraftBook(device), device, updates)
    assert device.passes == [
        {"a@1": (0, 6), "b@1": (0, 2)},
        {"b@1": (2, 6), "c@1": (0, 4)},
        {"c@1": (4, 6)},
    ]


def test_a_prompt_that_is_not_ready_holds_nobody_back(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, drain: Drain
) -> None:
    device = toy_device(max_num_batched_tokens=16)
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(6))])
    device.passes.clear()
    book.apply(_add("slow", _prompt(64)), 0)
    book.apply(_want("slow", "a"), 0)
    drain(book, device, most=K - 1)
    (answer,) = book.take_answers()
    assert _tokens(answer) == {"a": toy_greedy(_prompt(6), K), "slow": []}
    assert 0 < device.passes[0]["slow@1"][1] < 64, "its prompt goes on beside the drafts"
    drain(book, device)
    (answer,) = serve(book, device, [_want("slow", "a", ticket=2)])
    assert _tokens(answer)["slow"] == toy_greedy(_prompt(64), K), "and it comes back"


def test_passes_hold_no_more_requests_than_the_device_takes(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(max_num_seqs=2)
    book = DraftBook(device)
    names = "abcd"
    updates = [_add(name, _prompt(5, place)) for place, name in enumerate(names)]
    (answer,) = serve(book, device, [*updates, _want(*names)])
    assert all(len(each) <= 2 for each in device.passes)
    drafted = [name for name, tokens in _tokens(answer).items() if tokens]
    assert len(drafted) >= 2
    for place, name in enumerate(names):
        expected = toy_greedy(_prompt(5, place), K)
        assert _tokens(answer)[name] == expected[: len(_tokens(answer)[name])]


# -- a pool that is too small --------------------------------------------------------


def test_a_full_pool_declines_the_newest_and_they_come_back(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(num_kv_blocks=6, block_size=4)
    book = DraftBook(device)
    prompts = {name: _prompt(7, place) for place, name in enumerate("abc")}
    (answer,) = serve(book, device, [*(_add(*item) for item in prompts.items()), _want(*"abc")])
    assert _tokens(answer) == {
        "a": toy_greedy(prompts["a"], K),
        "b": toy_greedy(prompts["b"], K),
        "c": [],
    }
    (answer,) = serve(book, device, [Update(releases=[("a", 1)]), _want("b", "c", ticket=2)])
    assert _tokens(answer) == {each: toy_greedy(prompts[each], K) for each in "bc"}


def test_one_ticket_only_declines_and_the_next_asks_again(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(num_kv_blocks=3, block_size=4)
    book = DraftBook(device)
    a, b = _prompt(7), _prompt(7, 3)
    (answer,) = serve(book, device, [_add("a", a), _add("b", b), _want("a", "b")])
    assert _tokens(answer) == {"a": toy_greedy(a, K), "b": []}
    (answer,) = serve(book, device, [_want("b", ticket=2)])
    assert _tokens(answer) == {"b": []}, "the older one keeps its KV"
    serve(book, device, [Update(releases=[("a", 1)])])
    (answer,) = serve(book, device, [_want("b", ticket=3)])
    assert _tokens(answer) == {"b": toy_greedy(b, K)}


def test_an_older_request_takes_the_room_of_a_newer_one(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(num_kv_blocks=4, block_size=4)
    book = DraftBook(device)
    a, b = _prompt(7), _prompt(7, 3)
    serve(book, device, [_add("a", a), _add("b", b)])
    assert device.holders == {"a@1", "b@1"}
    (answer,) = serve(book, device, [_want("a")])
    assert _tokens(answer) == {"a": toy_greedy(a, K)}
    (answer,) = serve(book, device, [_want("a", "b", ticket=2)])
    assert _tokens(answer) == {"a": toy_greedy(a, K), "b": []}


def test_a_prompt_larger_than_the_pool_is_declined(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(num_kv_blocks=3, block_size=4)
    book = DraftBook(device)
    (answer,) = serve(book, device, [_add("big", _prompt(30)), _want("big")])
    assert _tokens(answer) == {"big": []}
    serve(book, device, [Update(releases=[("big", 1)])])
    (answer,) = serve(book, device, [_add("a", _prompt(6)), _want("a", ticket=2)])
    assert _tokens(answer) == {"a": toy_greedy(_prompt(6), K)}


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    num_kv_blocks=st.integers(1, 12),
    block_size=st.integers(1, 4),
)
@example(lengths=[3, 2], num_kv_blocks=1, block_size=2)
def test_idle_work_ends_whatever_the_pool(
    toy_device: Any, drain: Drain, lengths: list[int], num_kv_blocks: int, block_size: int
) -> None:
    device = toy_device(num_kv_blocks=num_kv_blocks, block_size=block_size)
    book = DraftBook(device)
    for place, length in enumerate(lengths):
        book.apply(_add(f"r{place}", _prompt(length, place)), 0)
    assert drain(book, device, most=100) < 100


def test_a_request_that_cannot_fit_leaves_the_kv_of_others_alone(
    toy_device: Any, drain: Drain
) -> None:
    device = toy_device(num_kv_blocks=4, block_size=4)
    book = DraftBook(device)
    book.apply(_add("big", _prompt(30)), 0)
    book.apply(_add("a", _prompt(6)), 0)
    drain(book, device, most=20)
    assert device.num_released == 0


# -- drafting ahead ------------------------------------------------------------------


@given(
    length=st.integers(1, 20),
    lead=st.integers(0, K + 1),
    accepted=st.integers(0, K),
    right=st.booleans(),
)
def test_an_answer_at_once_holds_what_the_lead_guessed(
    toy_device: Any,
    toy_greedy: Greedy,
    serve: Serve,
    length: int,
    lead: int,
    accepted: int,
    right: bool,
) -> None:
    """After `accepted` drafts and one more token, right or wrong, with nothing run since."""
    device = toy_device()
    book = DraftBook(device)
    prompt = _prompt(length)
    serve(book, device, [_add("a", prompt), _want("a", lead=lead)])
    num = len(device.passes)
    new = toy_greedy(prompt, accepted + 1)
    new[-1] += not right
    book.apply(Update(commits=[Commit("a", 1, length, new)]), 0)
    book.apply(_want("a", ticket=2, may_wait=False, lead=lead), 0)
    (answer,) = book.take_answers()
    assert len(device.passes) == num
    held = max(0, K + lead - (accepted + 1)) if right else 0
    assert _tokens(answer) == {"a": toy_greedy([*prompt, *new], min(K, held))}
    assert (answer.num_passes, answer.start_ns, answer.end_ns) == (0, 0, 0)


def test_a_full_lead_and_a_perfect_commit_need_no_pass_even_if_it_may_wait(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device()
    book = DraftBook(device)
    prompt = _prompt(6)
    serve(book, device, [_add("a", prompt), _want("a", lead=K + 1)])
    new = toy_greedy(prompt, K + 1)
    book.apply(Update(commits=[Commit("a", 1, len(prompt), new)]), 0)
    book.apply(_want("a", ticket=2, lead=0), 0)
    num = len(device.passes)
    assert book.next_pass(0) == []
    (answer,) = book.take_answers()
    assert _tokens(answer) == {"a": toy_greedy([*prompt, *new], K)}
    assert (answer.num_passes, len(device.passes)) == (0, num)


def test_an_answer_at_once_overtakes_tickets_that_wait(toy_device: Any) -> None:
    device = toy_device()
    book = DraftBook(device)
    book.apply(_add("a", _prompt(4)), 0)
    book.apply(_want("a"), 0)
    book.apply(_want("a", ticket=2, may_wait=False), 0)
    assert [answer.ticket for answer in book.take_answers()] == [2]


def test_without_a_lead_idle_time_is_idle(toy_device: Any, serve: Serve, drain: Drain) -> None:
    device = toy_device()
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(4)), _want("a")])
    assert drain(book, device) == 0


# -- requests that go, or differ -----------------------------------------------------


@pytest.mark.parametrize("off", [-1, 1])
def test_a_commit_at_another_length_drops_the_request(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, off: int, caplog: pytest.LogCaptureFixture
) -> None:
    device = toy_device()
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(6)), _add("b", _prompt(5))])
    with caplog.at_level(logging.ERROR, logger="minedraft"):
        book.apply(Update(commits=[Commit("a", 1, 6 + off, [1])]), 0)
    assert "request a has 6 tokens here and" in caplog.text
    assert len(book) == 1
    assert device.holders == {"b@1"}
    (answer,) = serve(book, device, [_want("a", "b")])
    assert _tokens(answer) == {"b": toy_greedy(_prompt(5), K)}
    tokens = _prompt(8)
    (answer,) = serve(book, device, [_add("a", tokens, 2), _want("a", ticket=2)])
    assert _tokens(answer) == {"a": toy_greedy(tokens, K)}


def test_a_request_that_goes_while_it_is_drafted_is_not_answered(
    toy_device: Any, toy_greedy: Greedy, drain: Drain
) -> None:
    device = toy_device()
    book = DraftBook(device)
    for name in "ab":
        book.apply(_add(name, _prompt(5)), 0)
    book.apply(_want("a", "b"), 0)
    drain(book, device, most=2)
    book.apply(Update(releases=[("a", 1)]), 0)
    drain(book, device)
    (answer,) = book.take_answers()
    assert _tokens(answer) == {"b": toy_greedy(_prompt(5), K)}
    assert device.holders == {"b@1"}


def test_the_whole_ticket_goes_while_it_is_drafted(toy_device: Any, drain: Drain) -> None:
    device = toy_device()
    book = DraftBook(device)
    book.apply(_add("a", _prompt(5)), 0)
    book.apply(_want("a"), 0)
    drain(book, device, most=2)
    book.apply(Update(releases=[("a", 1)]), 0)
    assert drain(book, device) == 0
    (answer,) = book.take_answers()
    assert answer.drafts == []


def test_an_id_that_comes_back_does_not_answer_for_its_old_life(
    toy_device: Any, drain: Drain
) -> None:
    device = toy_device()
    book = DraftBook(device)
    book.apply(_add("a", _prompt(5)), 0)
    book.apply(_want("a"), 0)
    drain(book, device, most=2)
    book.apply(_add("a", _prompt(9, 1), 2), 0)
    drain(book, device)
    (answer,) = book.take_answers()
    assert answer.drafts == []
    assert device.holders == {"a@2"}


def test_a_late_release_does_not_touch_the_next_life(toy_device: Any, serve: Serve) -> None:
    device = toy_device()
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(5), 2), Update(releases=[("a", 1)])])
    assert len(book) == 1
    serve(book, device, [Update(releases=[("a", 2)])])
    assert len(book) == 0
    assert device.holders == set()


def test_updates_apply_releases_then_adds_then_commits_then_wants(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device()
    book = DraftBook(device)
    serve(book, device, [_add("a", _prompt(5))])
    everything = Update(
        releases=[("a", 1)],
        adds=[Add("a", 2, _prompt(4))],
        commits=[Commit("a", 2, 4, [3])],
        wants=_want("a").wants,
    )
    (answer,) = serve(book, device, [everything])
    assert _tokens(answer) == {"a": toy_greedy([*_prompt(4), 3], K)}
    assert (answer.drafts[0].version, answer.drafts[0].committed_len) == (2, 5)


# -- guesses that are reported unasked -----------------------------------------------

LEAD = 2 * K + 1


def _race(name: str, tokens: list[int]) -> Update:
    return Update(adds=[Add(name, 1, tokens, reported_lead=LEAD)])


def _guesses(reports: list[Any], name: str) -> list[list[int]]:
    assert all(isinstance(each, Guesses) for each in reports)
    return [d.token_ids for each in reports for d in each.drafts if d.request_id == name]


def test_every_pass_is_reported_up_to_the_lead(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device()
    book = DraftBook(device)
    reports = serve(book, device, [_race("a", _prompt(6)), _race("b", _prompt(5, 2))])
    for name, prompt in (("a", _prompt(6)), ("b", _prompt(5, 2))):
        wanted = [toy_greedy(prompt, count) for count in range(1, LEAD + 1)]
        assert _guesses(reports, name) == wanted
    assert len(device.passes) == LEAD, "both share every pass"
    assert book.is_expected_to_speak


@pytest.mark.parametrize("right", [True, False])
def test_a_race_goes_on_from_what_was_right(
    toy_device: Any, toy_greedy: Greedy, serve: Serve, right: bool
) -> None:
    device = toy_device()
    book = DraftBook(device)
    prompt = _prompt(6)
    serve(book, device, [_race("a", prompt)])
    new = toy_greedy(prompt, 3)
    new[-1] += not right
    reports = serve(book, device, [Update(commits=[Commit("a", 1, 6, new)])])
    after = [*prompt, *new]
    kept = LEAD - 3 if right else 0
    assert _guesses(reports, "a") == [
        toy_greedy(after, count) for count in range(kept + 1, LEAD + 1)
    ]
    assert {each.drafts[0].committed_len for each in reports} == {9}


def test_a_long_prompt_does_not_hold_up_the_race(toy_device: Any, serve: Serve) -> None:
    """It comes in by its share of each pass, while the others get a guess in every one."""
    device = toy_device(max_num_batched_tokens=40)
    book = DraftBook(device)
    serve(book, device, [_race("a", _prompt(6))])
    device.passes.clear()
    book.apply(_race("b", _prompt(60)), 0)
    book.apply(Update(commits=[Commit("a", 1, 6, [6])]), 0)
    for _ in range(4):
        rows = book.next_pass(0)
        book.record(rows, device.run(rows), 0)
    assert [sorted(each) for each in device.passes] == [["a@1", "b@1"]] * 4
    assert [each["b@1"][1] - each["b@1"][0] for each in device.passes] == [10] * 4


def test_times_of_a_report_are_those_of_its_pass(toy_device: Any) -> None:
    device = toy_device()
    book = DraftBook(device)
    book.apply(_race("a", _prompt(4)), 5)
    rows = book.next_pass(100)
    book.record(rows, device.run(rows), 105)
    (report,) = book.take_answers()
    assert (report.start_ns, report.end_ns, report.num_passes) == (100, 105, 1)


def test_a_race_ends_at_the_end_of_the_context(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    device = toy_device(max_model_len=8)
    reports = serve(DraftBook(device), device, [_race("a", _prompt(6))])
    assert _guesses(reports, "a")[-1] == toy_greedy(_prompt(6), 2)


def test_a_race_for_a_full_pool_is_run_by_those_that_fit(toy_device: Any, serve: Serve) -> None:
    device = toy_device(num_kv_blocks=5, block_size=4)
    book = DraftBook(device)
    reports = serve(book, device, [_race("a", _prompt(6)), _race("b", _prompt(6, 1))])
    assert len(_guesses(reports, "a")[-1]) == LEAD
    reports = serve(book, device, [Update(releases=[("a", 1)])])
    assert len(_guesses(reports, "b")[-1]) == LEAD


def test_the_newest_gives_way_even_while_it_races(toy_device: Any, drain: Drain) -> None:
    device = toy_device(num_kv_blocks=14, block_size=4)
    book = DraftBook(device)
    book.apply(_race("z", _prompt(16)), 0)
    drain(book, device, most=1)
    book.apply(_race("a", _prompt(40, 1)), 0)  # needs 10 blocks, 9 are free
    book.apply(_race("d", _prompt(20, 2)), 0)  # newer, and would fit
    drain(book, device, most=1)
    book.apply(Update(releases=[("z", 1)]), 0)
    for length in range(20, 40):
        drain(book, device, most=1)
        book.apply(Update(commits=[Commit("d", 1, length, [49])]), 0)
    assert "a@1" in device.holders


def test_a_full_pool_is_not_asked_again_by_everyone(toy_device: Any, drain: Drain) -> None:
    class Counting(toy_device):  # type: ignore[misc]
        asked = 0

        def reserve(self, *args: Any) -> bool:
            self.asked += 1
            return bool(super().reserve(*args))

    device = Counting(num_kv_blocks=6, block_size=4)
    book = DraftBook(device)
    book.apply(_race("a", _prompt(8)), 0)
    drain(book, device, most=2)
    for number in range(100):
        book.apply(_race(f"b{number}", _prompt(40, number)), 0)
    device.asked = 0
    assert book.next_pass(0)
    assert device.asked < 5


def test_prompts_get_their_share_of_a_crowded_race(toy_device: Any, drain: Drain) -> None:
    device = toy_device(max_num_batched_tokens=8)
    book = DraftBook(device)
    for name in "abcd":
        book.apply(_race(name, [1]), 0)
    drain(book, device, most=1)
    book.apply(_race("e", _prompt(20)), 0)
    for length in range(1, 30):
        for name in "abcd":
            book.apply(Update(commits=[Commit(name, 1, length, [49])]), 0)
        rows = book.next_pass(0)
        book.record(rows, device.run(rows), 0)
    fed = [each for each in device.passes if "e@1" in each]
    assert [each["e@1"] for each in fed[:3]] == [(0, 2), (2, 4), (4, 6)]
    assert all(len(each) == 5 for each in fed[:9]), "nobody gave way for the prompt"


def test_it_goes_on_speaking_for_requests_that_it_lost(toy_device: Any) -> None:
    """The scheduler believes in them, and would take silence for a hang."""
    book = DraftBook(toy_device())
    book.apply(_race("a", [1, 2, 3]), 0)
    book.apply(Update(commits=[Commit("a", 1, 5, [4])]), 0)  # the one before was lost
    assert len(book) == 0
    assert book.is_expected_to_speak


def test_a_prompt_beyond_the_context_is_left_alone_beside_a_race(
    toy_device: Any, toy_greedy: Greedy, serve: Serve
) -> None:
    """The device asserts that nothing is fed beyond its context."""
    device = toy_device(max_model_len=20)
    reports = serve(DraftBook(device), device, [_race("long", _prompt(30)), _race("a", _prompt(5))])
    assert _guesses(reports, "a")[-1] == toy_greedy(_prompt(5), LEAD)
    assert device.holders == {"a@1"}


def test_one_without_room_keeps_nobody_from_guessing_ahead(toy_device: Any, serve: Serve) -> None:
    device = toy_device(num_kv_blocks=6, block_size=4)
    book = DraftBook(device)
    (answer,) = serve(book, device, [_add("a", _prompt(6)), _want("a", lead=K + 1)])
    assert _tokens(answer)["a"]
    device.passes.clear()
    serve(book, device, [_add("b", _prompt(24, 1)), _want("b", ticket=2, lead=K + 1)])
    serve(
        book, device, [Update(commits=[Commit("a", 1, 6, [49])]), _want("a", ticket=3, lead=K + 1)]
    )
    assert max(end for each in device.passes for _, end in each.values()) >= 7 + 2 * K
