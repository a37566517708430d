"""What the demo found, held against what was planted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from anabranch.calls import count
from anabranch.spark.demo.broadcast import Broadcast

__all__ = ["Measured", "Streamed", "Verdict"]


@dataclass
class Streamed:
    """What the streaming query did.

    `found` holds a pair of ids for every row of its sink; `rows`, `late` and `comparisons` add up
    its batches. `seconds` is the wall-clock time, and `compared` the comparisons, from the end of
    the first batch on, which only loads code.
    """

    found: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    late: int = 0
    comparisons: int = 0
    compared: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What the constant-key join got done in its time.

    `rows` and `comparisons` are of the batches that finished, which took `seconds`; `pairs` are
    those it found, `ids` the rows of either side that it saw. `complete` tells whether it came to
    the end of its rows.
    """

    rows: int
    comparisons: int
    seconds: float
    pairs: set[tuple[int, int]]
    ids: tuple[frozenset[int], frozenset[int]]
    complete: bool


@dataclass(frozen=True)
class Verdict:
    """The summary: figures to test, and a text to print."""

    broadcast: Broadcast
    window: float
    streamed: Streamed
    joined: Measured | None = None

    @cached_property
    def found(self) -> set[tuple[int, int]]:
        """The different pairs that came out."""
        return set(self.streamed.found)

    @property
    def missed(self) -> set[tuple[int, int]]:
        """Due, but not found."""
        return self.broadcast.due - self.found

    @property
    def false(self) -> set[tuple[int, int]]:
        """Found, but not due."""
        return self.found - self.broadcast.due

    @property
    def twice(self) -> int:
        """How many rows of the sink repeat an earlier one."""
        return len(self.streamed.found) - len(self.found)

    @cached_property
    def comparisons_due(self) -> int | None:
        """How many pairs were to be compared, unless it depended on chance.

        A straggler is late only if the watermark has passed it by the time it comes. If some were
        and some were not, only the query knows which.
        """
        if self.streamed.late not in (0, self.broadcast.stragglers):
            return None
        return self.broadcast.comparisons(self.window, stragglers=self.streamed.late == 0)

    @property
    def compared_once(self) -> bool | None:
        """Whether just the pairs within the window were compared; None if that cannot be told."""
        due = self.comparisons_due
        return None if due is None else due == self.streamed.comparisons

    @cached_property
    def found_in_slice(self) -> set[tuple[int, int]]:
        """The pairs found among the rows that the constant-key join saw."""
        assert self.joined is not None
        left, right = self.joined.ids
        return {(a, b) for a, b in self.found if a in left and b in right}

    @property
    def join_agrees(self) -> bool:
        """Whether the constant-key join, if it ran, found the same pairs among its rows."""
        return self.joined is None or self.joined.pairs == self.found_in_slice

    @property
    def good(self) -> bool:
        """Whether everything is as it should be."""
        wrong = self.missed or self.false or self.twice
        return not wrong and self.compared_once is not False and self.join_agrees

    @property
    def rate(self) -> float:
        """Comparisons per second of the streaming query."""
        return self.streamed.compared / self.streamed.seconds if self.streamed.seconds else 0.0

    @property
    def join_rate(self) -> float:
        """Comparisons per second of the constant-key join."""
        done = self.joined
        return done.comparisons / done.seconds if done is not None and done.seconds else 0.0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("Stories", style="bold")
        yield self._stories()
        yield Text("The stream", style="bold")
        yield self._stream()
        if self.joined is not None:
            yield Text("The join that Spark users write today: constant key, one task", "bold")
            yield self._join(self.joined)
        if self.rate and self.join_rate:
            yield Text(
                f"ab.correlate made {self.rate / self.join_rate:,.0f} times as many comparisons "
                "per second.",
                style="bold",
            )
        if not self.good and self.streamed.late > self.broadcast.stragglers:
            yield Text(
                "More rows were late than were sent late: this machine is too slow for the "
                "stream's speed; try --speed 2."
            )

    def _stories(self) -> Table:
        sheet = _sheet()
        planted, due = self.broadcast.stories, self.broadcast.due
        wrong = len(self.false) + self.twice
        _line(sheet, "planted", len(planted), f"{len(planted) - len(due)} of them traps")
        _line(sheet, "due", len(due), "within the window and alike enough")
        _line(sheet, "found", len(due & self.found), "by the query", not self.missed)
        _line(sheet, "missed", len(self.missed), "", not self.missed)
        _line(sheet, "false", wrong, "traps, chance pairs, pairs given twice", not wrong)
        return sheet

    def _stream(self) -> Table:
        sheet, done = _sheet(), self.streamed
        sent = self.broadcast
        text = f"{done.late} dropped as late; {sent.stragglers} stragglers were sent"
        _line(sheet, "rows", f"{done.rows:,}", text)
        remark = {
            True: "every pair of rows within the window, once",
            False: f"but {self.comparisons_due} pairs of rows are within the window",
            None: "unchecked: which of the stragglers were late is open",
        }[self.compared_once]
        _line(sheet, "comparisons", count(done.comparisons), remark, self.compared_once)
        _line(sheet, "per second", count(self.rate), f"over {done.seconds:.1f} s on the wall clock")
        return sheet

    def _join(self, joined: Measured) -> Table:
        sheet = _sheet()
        _line(sheet, "rows", f"{joined.rows:,}", "a slice of the same rows, stories kept")
        ended = "" if joined.complete else ", then its time was up"
        _line(sheet, "comparisons", count(joined.comparisons), "")
        _line(sheet, "per second", count(self.join_rate), f"over {joined.seconds:.1f} s{ended}")
        ours = f"ab.correlate found {len(self.found_in_slice)} among these rows"
        _line(sheet, "pairs", len(joined.pairs), ours, self.join_agrees)
        return sheet


def _sheet() -> Table:
    sheet = Table.grid(padding=(0, 2))
    sheet.add_column(no_wrap=True, min_width=13)
    sheet.add_column(justify="right", no_wrap=True, min_width=9)
    sheet.add_column()
    return sheet


def _line(
    sheet: Table, name: str, figure: int | str, remark: str, good: bool | None = None
) -> None:
    style = "" if good is None else "bold green" if good else "bold red"
    sheet.add_row(f"  {name}", Text(str(figure), style=style), Text(remark, style="dim"))
