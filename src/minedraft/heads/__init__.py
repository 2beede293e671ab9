"""Heads that draft from a target's hidden states: their arithmetic, and training small ones.

It imports no vLLM; `minedraft.plugin` runs heads, trained here or elsewhere.
"""

from minedraft.heads.course import Course, run_course
from minedraft.heads.eagle import EagleHead, default_layers
from minedraft.heads.kinds import Head, HeadKind
from minedraft.heads.medusa import MedusaHeads
from minedraft.heads.text import TargetText, write_texts
from minedraft.heads.train import HeadTraining, Progress, train_head

__all__ = [
    "Course",
    "EagleHead",
    "Head",
    "HeadKind",
    "HeadTraining",
    "MedusaHeads",
    "Progress",
    "TargetText",
    "default_layers",
    "run_course",
    "train_head",
    "write_texts",
]
