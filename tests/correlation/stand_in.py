"""Jobs of `correlate` whose tasks have a stand-in for a GPU."""

from __future__ import annotations

from typing import ClassVar

from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.flow.gpu.device import Device
from anabranch.flow.kernel import Task
from tests.devices import StandIn


class StandInJob(CorrelateJob):
    """A call whose tasks have a stand-in for a GPU, unless it asks for the CPU."""

    opened: ClassVar[StandIn | None] = None

    def device(self, task: Task) -> Device | None:
        if self.correlation.device == "cpu":
            return None
        if StandInJob.opened is None:
            StandInJob.opened = StandIn()
        return StandInJob.opened


class StandInForwardingJob(StandInJob, ForwardingJob):
    """The same for rows that have homes."""
