"""The scheduler's view of a drafter that is never asked: it reports its guesses as they come.

Owns the comparison of guesses with what the target decided meanwhile, so that the next
drafts of a request are here before the drafter knows that they are wanted. It neither plans
steps nor knows vLLM.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from minedraft.clock import Clock, RealClock
from minedraft.drafter.link import DrafterLink
from minedraft.drafter.process import Connection
from minedraft.drafter.request import num_equal
from minedraft.drafter.revival import Revival
from minedraft.drafter.source import (
    PLAIN_TERMS,
    DraftCounters,
    HeldDraft,
    PassTimes,
    RequestTerms,
)
from minedraft.policies.base import DraftState
from minedraft.transport.candidates import has_all_confidences, is_sound
from minedraft.transport.messages import Add, Candidates, Commit, Draft, Guesses, Sampling

_MOST_REPORTS = 64


@dataclass(frozen=True, slots=True)
class _Reach:
    """A pass, and the length of the sequence that its guesses reached."""

    end: int
    times: PassTimes


@dataclass(slots=True, kw_only=True)
class _Followed:
    """`recent` is what was committed from `basis` on, the length that the drafter's last
    report continued from; `guesses` continue from all of it, and each has its pass."""

    version: int
    limit: int
    lead: int
    sampling: Sampling | None
    basis: int
    recent: list[int] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)
    passes: list[PassTimes] = field(default_factory=list)
    candidates: Candidates | None = None
    confidences: list[float] | None = None

    @property
    def committed_len(self) -> int:
        return self.basis + len(self.recent)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Keep the guesses that follow these tokens, if they were guessed."""
        count = len(token_ids)
        self.recent.extend(token_ids)
        if self.guesses[:count] == list(token_ids):
            self._hold(
                self.guesses[count:],
                self.passes[count:],
                _rest(self.candidates, count, len(self.guesses)),
                self.confidences and self.confidences[count:],
            )
        else:
            self.drop()

    def take_in(self, draft: Draft, passes: Sequence[_Reach], vocab_size: int | None) -> int | None:
        """Follow the drafter's news, if it was right about all that was committed since.

        `passes` are those that led to it, the newest last. Fewer
        guesses than are held tell nothing new: the drafter forgot its own, and makes them
        again. Returns how many guesses are new; None if they cannot be true.
        """
        del self.recent[: draft.committed_len - self.basis]
        self.basis = draft.committed_len
        count, tokens = len(self.recent), draft.token_ids
        if tokens[:count] != self.recent or len(tokens) - count < len(self.guesses):
            return 0
        guesses = tokens[count:]
        agreed = self._num_known(draft, count)
        news = _part(draft, count + agreed)
        if not is_sound(news, self.sampling, vocab_size) or not has_all_confidences(draft):
            return None
        self._hold(
            guesses,
            self.passes[:agreed]
            + [_pass_at(passes, news.committed_len + at) for at in range(len(news.token_ids))],
            _joined(self.candidates, agreed, news.candidates),
            draft.confidences and draft.confidences[count:],
        )
        return len(news.token_ids)

    def _num_known(self, draft: Draft, start: int) -> int:
        """Leading guesses of `draft` from its token `start` on that are held already.

        A drawn token counts only with the same distribution: after its KV was lost, the
        drafter may draw the same token from another one.
        """
        equal = num_equal(draft.token_ids[start:], self.guesses)
        for at in range(equal):
            if _row(draft.candidates, start + at) != _row(self.candidates, at):
                return at
        return equal

    def drop(self) -> None:
        """Hold no guesses."""
        self._hold([], [], None, None)

    def _hold(
        self,
        guesses: list[int],
        passes: list[PassTimes],
        candidates: Candidates | None,
        confidences: list[float] | None,
    ) -> None:
        self.guesses, self.passes = guesses, passes
        self.candidates, self.confidences = candidates, confidences


class WaitFreeClient:
    """Follows requests on behalf of the scheduler, for a target that never waits.

    A request has the guesses that are here: k, fewer, or none. Tokens that the target
    decides are compared with them at once; all equal, and the rest is the next draft. A
    drafter that is behind is neither late nor asked; one that gives no sign of life for
    `hang_timeout_s`, dies or breaks the protocol is lost, as in DrafterClient.
    Not thread-safe.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        k: int,
        hang_timeout_s: float,
        vocab_size: int | None = None,
        revival: Revival | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = RealClock() if clock is None else clock
        self._link = DrafterLink(
            connection,
            hang_timeout_s=hang_timeout_s,
            revival=revival,
            on_loss=self._drop_guesses,
            clock=self._clock,
        )
        self._k = k
        self._vocab_size = vocab_size
        self._followed: dict[str, _Followed] = {}
        self._last_version = 0
        self._busy_since = self._clock.now_ns() / 1e9

    @property
    def counters(self) -> DraftCounters:
        """What the drafter did so far."""
        return self._link.counters

    @property
    def available(self) -> bool:
        """Whether the drafter is there."""
        return self._link.is_connected

    # -- what happened ---------------------------------------------------------------

    def follow(
        self, request_id: str, token_ids: Sequence[int], terms: RequestTerms = PLAIN_TERMS
    ) -> None:
        """See DrafterClient.follow."""
        self.release(request_id)
        if not self._followed:
            self._busy_since = self._clock.now_ns() / 1e9
        self._last_version += 1
        limit = self._k if terms.limit is None else min(terms.limit, self._k)
        followed = self._followed[request_id] = _Followed(
            version=self._last_version,
            limit=limit,
            # Those verified now, the token that the target adds, and those verified next.
            lead=2 * limit + 1,
            sampling=terms.sampling,
            basis=len(token_ids),
        )
        self._link.add(
            Add(
                request_id,
                followed.version,
                list(token_ids),
                limit,
                terms.sampling,
                followed.lead,
                terms.cache_salt,
                terms.adapter,
            )
        )

    def commit(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Report tokens that the target decided; guesses that agree with them stay."""
        followed = self._followed.get(request_id)
        if followed is None or not token_ids:
            return
        committed_len = followed.committed_len
        self._link.commit(Commit(request_id, followed.version, committed_len, list(token_ids)))
        followed.commit(token_ids)

    def release(self, request_id: str) -> None:
        """See DrafterClient.release."""
        followed = self._followed.pop(request_id, None)
        if followed is not None:
            self._link.release(request_id, followed.version)

    def ask(self, request_ids: Sequence[str]) -> None:
        """Nothing: this drafter is never asked."""

    def flush(self) -> None:
        """Send what was collected."""
        self._link.flush()

    # -- what is known ---------------------------------------------------------------

    def version(self, request_id: str) -> int | None:
        """See DrafterClient.version."""
        followed = self._followed.get(request_id)
        return followed.version if followed is not None and self.available else None

    def follows(self, request_id: str) -> bool:
        """Whether there may ever be drafts for this request."""
        return request_id in self._followed

    def state(self, request_id: str) -> DraftState:
        """READY with a guess at least, else NONE: nobody is waited for."""
        followed = self._followed.get(request_id)
        return DraftState.READY if followed is not None and followed.guesses else DraftState.NONE

    def draft_of(self, request_id: str, committed_len: int) -> HeldDraft | None:
        """The guesses that continue the request from `committed_len`, k of them at most."""
        followed = self._followed.get(request_id)
        if followed is None or not followed.guesses or followed.committed_len != committed_len:
            return None
        tokens = followed.guesses[: followed.limit]
        candidates = _rest(followed.candidates, 0, len(tokens))
        passes = dict.fromkeys(followed.passes[: len(tokens)])
        confidences = followed.confidences and followed.confidences[: len(tokens)]
        version = followed.version
        return HeldDraft(
            draft=Draft(request_id, version, committed_len, tokens, candidates, confidences),
            origins=tuple(passes),
        )

    # -- what comes back -------------------------------------------------------------

    def collect(self) -> None:
        """Take in every report that is here, and a drafter that came back."""
        if not self._link.is_connected and self._link.revive():
            self._followed.clear()
        reports: list[Guesses] = []
        # Not until none is left: a fast drafter would be chased, and the target kept waiting.
        for _ in range(_MOST_REPORTS):
            message = self._link.receive(0.0) if self._link.is_connected else None
            if message is None:
                break
            if isinstance(message, Guesses):
                reports.append(message)
            else:
                self._link.lose(f"it sent {message!r} when guesses were expected")
        if not self._link.is_connected:
            return
        self._accept(reports)
        if self._followed:
            self._link.lose_if_silent(self._busy_since)

    def wait(self, request_ids: Collection[str], timeout_s: float) -> bool:
        """True at once: nobody is awaited."""
        return True

    def close(self) -> None:
        """End the drafter, for good."""
        self._link.close()

    def _accept(self, reports: Sequence[Guesses]) -> None:
        """Take in the newest news of each request; what they replace is not looked at."""
        newest: dict[tuple[str, int], tuple[Draft, list[_Reach]]] = {}
        for report in reports:
            times = PassTimes(report.start_ns, report.end_ns, report.num_passes)
            for draft in report.drafts:
                key = draft.request_id, draft.version
                before, passes = newest.get(key, (None, []))
                newest[key] = draft, _followed_by(passes, before, draft, times)
        for draft, passes in newest.values():
            followed = self._followed.get(draft.request_id)
            news = None
            if followed is not None and _fits(draft, followed):
                news = followed.take_in(draft, passes, self._vocab_size)
            self.counters.stale_drafts += news is None
            if news:
                self.counters.drafts += 1
                self.counters.draft_tokens += news
                self._link.proven()

    def _drop_guesses(self) -> None:
        for followed in self._followed.values():
            followed.drop()


def _fits(draft: Draft, followed: _Followed) -> bool:
    return (
        draft.version == followed.version
        and followed.basis <= draft.committed_len <= followed.committed_len
        and 0 < len(draft.token_ids) <= followed.lead
    )


def _followed_by(
    passes: Sequence[_Reach], before: Draft | None, draft: Draft, times: PassTimes
) -> list[_Reach]:
    """The passes up to `before` whose guesses `draft` still has, and the one of `draft`."""
    end = draft.committed_len + len(draft.token_ids)
    same = draft.committed_len
    if before is not None:
        known = before.token_ids[max(0, draft.committed_len - before.committed_len) :]
        same += num_equal(known, draft.token_ids)
    return [*(each for each in passes if each.end <= same), _Reach(end, times)]


def _pass_at(passes: Sequence[_Reach], position: int) -> PassTimes:
    """The pass that guessed the token at `position` of the sequence."""
    return next(each.times for each in passes if position < each.end)


def _part(draft: Draft, start: int) -> Draft:
    """What `draft` says from its token `start` on."""
    tokens = draft.token_ids
    return Draft(
        draft.request_id,
        draft.version,
        draft.committed_len + start,
        tokens[start:],
        _rest(draft.candidates, start, len(tokens)),
    )


def _row(candidates: Candidates | None, at: int) -> Candidates | None:
    return None if candidates is None else candidates.part(at, at + 1)


def _rest(candidates: Candidates | None, start: int, end: int) -> Candidates | None:
    """Those of draft tokens [start, end); None if there are none."""
    return None if candidates is None or start >= end else candidates.part(start, end)


def _joined(held: Candidates | None, count: int, news: Candidates | None) -> Candidates | None:
    """The first `count` of those held, then the new ones."""
    head = _rest(held, 0, count)
    if head is None or news is None:
        return head or news
    return Candidates(head.width, head.token_ids + news.token_ids, head.probs + news.probs)
