"""The planner: which mode, draft length and placement a pair and a load want, by closed forms.

docs/planner.md says what is asked and what is counted; it measures nothing.
"""

from minedraft.planner.map import WinnerMap, cells_of, draw_map, make_map, ratio_of
from minedraft.planner.names import find_gpu, find_model, known_acceptance
from minedraft.planner.plan import Gain, Plan, make_plan
from minedraft.planner.question import Question
from minedraft.planner.row import GOALS, Row
from minedraft.planner.source import DeviceSource, ProfileSource, Source
from minedraft.planner.words import gain_sentence, text_of

__all__ = [
    "GOALS",
    "DeviceSource",
    "Gain",
    "Plan",
    "ProfileSource",
    "Question",
    "Row",
    "Source",
    "WinnerMap",
    "cells_of",
    "draw_map",
    "find_gpu",
    "find_model",
    "gain_sentence",
    "known_acceptance",
    "make_map",
    "make_plan",
    "ratio_of",
    "text_of",
]
