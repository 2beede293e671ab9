"""Devices and models by published figures, and how long a pass of one on the other should take.

docs/latency_models.md derives every number; nothing here was measured.
"""

from minedraft.hardware.catalogue import GPUS, LAUNCH_MS_PER_LAYER, MODELS
from minedraft.hardware.gpu import Gpu
from minedraft.hardware.model import Model
from minedraft.hardware.model_config import read_model
from minedraft.hardware.placement import Pair, Placement, StepTimes, check_num_gpus

__all__ = [
    "GPUS",
    "LAUNCH_MS_PER_LAYER",
    "MODELS",
    "Gpu",
    "Model",
    "Pair",
    "Placement",
    "StepTimes",
    "check_num_gpus",
    "read_model",
]
