"""The pair of the demo: SmolLM2-135M-Instruct and the small draft whose layers ship with us.

Does not convert or train; it puts the parts of `minedraft.models` together.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from minedraft.models.derive import TrainedLayers, derive_draft
from minedraft.models.smollm2 import ensure_smollm2

DRAFT_WEIGHTS = "smollm2_draft.safetensors"


def ensure_smollm2_pair(folder: Path | str) -> tuple[Path, Path]:
    """Make the model folders `target` and `draft` below `folder` unless there; give their paths.

    Raises:
        ModelSourceError: the target's files could not be obtained.
        ValueError: one of the two folders holds something else.
    """
    folder = Path(folder).absolute()
    target = ensure_smollm2(folder / "target")
    with as_file(files("minedraft.models") / "data" / DRAFT_WEIGHTS) as weights:
        draft = derive_draft(target, folder / "draft", recipe=TrainedLayers(path=weights))
    return target, draft
