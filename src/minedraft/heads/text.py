"""What a target says, and the hidden states behind it: what its heads are trained on.

Owns the run of the target through transformers; any causal model that transformers loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetText:
    """One text of n tokens: a prompt, and the target's continuation from `answer_at` on.

    `states` [n, width] are what a head takes of each position, `goals` [n, hidden] what the
    target's output matrix takes there, both float32. `best` [n] are the tokens that it makes most
    likely there.
    """

    ids: Tensor
    answer_at: int
    states: Tensor
    goals: Tensor
    best: Tensor


def write_texts(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    layers: Sequence[int] | None,
    temperature: float,
    seed: int,
) -> Iterator[TargetText]:
    """Let `model` (transformers, with a language-model head) continue each prompt.

    With `layers`, states are the inputs of those layers side by side (EAGLE-3), else the last
    one. Sets torch's seed before each text.
    """
    for number, prompt in enumerate(prompts, start=1):
        torch.manual_seed(seed + number)
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            drawn = {"do_sample": True, "temperature": temperature, "top_k": 0}
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=num_tokens,
                pad_token_id=0,
                **(drawn if temperature > 0 else {"do_sample": False}),
            )
            output = model(whole, output_hidden_states=True)
            found = output.hidden_states
        goals = found[-1][0].float()
        states = goals if layers is None else torch.cat([found[at][0] for at in layers], -1)
        yield TargetText(
            ids=whole[0].clone(),
            answer_at=len(prompt),
            states=states.float().clone(),
            goals=goals.clone(),
            best=output.logits[0].argmax(-1),
        )
