"""The simulator: engines, drafters and load as events, with the product's own policies.

It runs no model and sleeps no time; `theory` has the closed forms that hold it to account.
"""

from minedraft.simulator.chains import ChainModel, MarkovChains, PositionChains
from minedraft.simulator.link import LinkModel
from minedraft.simulator.outcome import Outcome
from minedraft.simulator.prediction import (
    EmulatedModels,
    Group,
    Prediction,
    ProfiledModels,
    predict,
)
from minedraft.simulator.recorder import header_of
from minedraft.simulator.run import simulate
from minedraft.simulator.scenario import (
    DrafterGroup,
    EngineGroup,
    Failure,
    Lengths,
    RequestModel,
    Scenario,
    read_scenarios,
)

__all__ = [
    "ChainModel",
    "DrafterGroup",
    "EmulatedModels",
    "EngineGroup",
    "Failure",
    "Group",
    "Lengths",
    "LinkModel",
    "MarkovChains",
    "Outcome",
    "PositionChains",
    "Prediction",
    "ProfiledModels",
    "RequestModel",
    "Scenario",
    "header_of",
    "predict",
    "read_scenarios",
    "simulate",
]
