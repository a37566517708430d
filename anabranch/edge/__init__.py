"""The running edge-cloud system: devices, relay and keeper as state machines, and what they say.

What a device runs imports no more than numpy, msgpack and nats-py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.errors import extra

with extra("edge", "anabranch.edge", "msgpack"):
    import msgpack as msgpack

if TYPE_CHECKING:
    from anabranch.edge.agent import Agent

__all__ = ["Agent"]


def __getattr__(name: str) -> Any:
    """The agent when it is asked for: the state machines do without nats-py."""
    if name != "Agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("edge", "an agent", "nats"):
        from anabranch.edge.agent import Agent
    return Agent
