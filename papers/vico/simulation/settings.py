"""What a simulated run is made of; the paper's figures where it gives them, else our choice."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["Settings"]

Range = tuple[float, float]


@dataclass(frozen=True)
class Settings:
    """One run. Times are whole seconds, because the simulator steps by the second.

    Parameters
    ----------
    hosts, operators
        Size of the cluster, and how many correlations share it.
    rates
        Mean rates of streams are drawn from this range (frames per second).
    redraw
        Seconds until the rates are drawn anew; 0 keeps them.
    eras
        Rates of left and right streams instead of drawn ones, one pair for each `redraw` seconds
        and in turn again; for all operators.
    rate_seed
        Seed of the rates where they shall not follow `seed`: runs that differ in hosts and
        arrivals alone can be averaged over time.
    seconds, warmup
        Length of the run, and how much of its beginning the throughput leaves out.
    window
        How long left and right frames stay (the paper: 60 s both).
    receive_cost, compare_cost
        Processor units of one frame received and of one comparison (the paper: 10 and 250).
    cpu, memory, link
        Ranges of capacities: units, megabytes, megabits per second (as in the paper).
    beta
        **Open.** Units per second that one unit of `cpu` capacity does: the paper gives costs and
        capacities in the same unit but no time base.
    frame_kilobytes
        **Open.** Size of a frame on the link and in memory.
    queue
        **Open.** Seconds of comparing that may wait in a host; pairs beyond are lost (overload).
    receive
        **Open.** ``first``: receiving goes before comparing. ``shared``: both share the processor
        by what waits.
    segment
        **Open** for figures 9 and 10. Segment length T of CSP.
    master
        **Open.** Which stream is the master at first, whose frames are spread while those of the
        other are copied: ``left``, ``right`` or ``faster``.
    shares
        **Open.** Masters are assigned by the hosts' ``speed`` (least loaded first, ahead of time),
        or ``equal``.
    staleness
        **Open.** Age in seconds that the loads seen by the LLF baselines reach; between two looks
        they add up what they have sent themselves.
    report
        **Open.** Seconds between load reports, on which adaptation is decided.
    ahead
        **Open.** A changed plan holds from this many reports after the one that caused it.
    segment_step
        **Open.** The paper's delta T, as a factor.
    delay
        **Open.** Frames reach the router up to this many seconds after their time stamp, evenly.
        The paper delays frames before it stamps them; that changes nothing for Poisson arrivals.
    weights
        Importance of processor, memory and link in a host's load (equation 1).
    seed
        Everything random follows from it.

    Examples
    --------
    >>> Settings(hosts=4).window_us
    (60000000, 60000000)
    >>> Settings(hosts=0, segment=0)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: simulate cannot start, 2 problems:
      1. hosts must be a whole number of at least 1, got 0
      2. segment must be a whole number of at least 1, got 0
    """

    hosts: int = 10
    operators: int = 1
    rates: Range = (1.0, 5.0)
    redraw: int = 0
    eras: tuple[Range, ...] = ()
    rate_seed: int | None = None
    seconds: int = 5000
    warmup: int = 500
    window: tuple[int, int] = (60, 60)
    receive_cost: float = 10.0
    compare_cost: float = 250.0
    cpu: Range = (500.0, 1000.0)
    memory: Range = (500.0, 1000.0)
    link: Range = (100.0, 1000.0)
    beta: float = 5.0
    frame_kilobytes: float = 10.0
    queue: int = 60
    receive: str = "first"
    segment: int = 10
    master: str = "left"
    shares: str = "speed"
    staleness: int = 1
    report: int = 5
    ahead: int = 2
    segment_step: float = 1.5
    delay: int = 0
    weights: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 0

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if not is_whole(value, least):
                problems.append(f"{name} must be a whole number of at least {least}, got {value!r}")
        for name in ("beta", "frame_kilobytes", "receive_cost", "compare_cost"):
            if not getattr(self, name) > 0:
                problems.append(f"{name} must be above 0, got {getattr(self, name)!r}")
        for name in ("rates", "cpu", "memory", "link"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                problems.append(
                    f"{name} must be a range above 0, lowest first, got {low:g} to {high:g}"
                )
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                options = ", ".join(allowed)
                problems.append(f"{name} must be one of {options}; got {getattr(self, name)!r}")
        if any(min(era) < 0 for era in self.eras):
            problems.append(f"eras must hold rates of at least 0, got {self.eras!r}")
        if min(self.window) < 0:
            problems.append(f"window must be two lengths of at least 0, got {self.window!r}")
        if not self.segment_step > 1:
            problems.append(f"segment_step must be above 1, got {self.segment_step!r}")
        if abs(sum(self.weights) - 1) > 1e-9 or min(self.weights) < 0:
            problems.append(f"weights must be at least 0 and sum to 1, got {self.weights!r}")
        if not problems and self.warmup >= self.seconds:
            problems.append(
                f"warmup={self.warmup} leaves nothing of {self.seconds} seconds to measure"
            )
        if problems:
            raise InvalidCall("simulate", problems)

    @property
    def frame_bytes(self) -> float:
        """Size of a frame."""
        return self.frame_kilobytes * 1000

    @property
    def window_us(self) -> tuple[int, int]:
        """The windows in microseconds, as plans take them."""
        return self.window[0] * 1_000_000, self.window[1] * 1_000_000


_WHOLE = {
    "hosts": 1,
    "operators": 1,
    "redraw": 0,
    "seconds": 1,
    "warmup": 0,
    "queue": 0,
    "segment": 1,
    "staleness": 1,
    "report": 1,
    "ahead": 1,
    "delay": 0,
    "seed": 0,
}
_WORDS = {
    "receive": ("first", "shared"),
    "master": ("left", "right", "faster"),
    "shares": ("speed", "equal"),
}
