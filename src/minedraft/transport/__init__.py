"""Transport between scheduler and drafter: typed messages over ZeroMQ."""

from __future__ import annotations

from minedraft.transport.channel import (
    Channel,
    PrivateEndpoint,
    drafter_channel,
    scheduler_channel,
)

__all__ = ["Channel", "PrivateEndpoint", "drafter_channel", "scheduler_channel"]
