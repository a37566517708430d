"""Progress of long calls: where it is shown, where not, and that it says what the call noted."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.flow import progress
from anabranch.flow.progress import Step, screen, step, working
from anabranch.spark import job_progress
from tests.spark.feeds import happens


class Seen:
    """A screen that remembers what it showed, and says so."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, Step]] = []
        self.closed = False
        self.news = threading.Event()

    def show(self, title: str, now: Step) -> None:
        self.shown.append((title.partition(",")[0], now))
        self.news.set()

    def close(self) -> None:
        self.closed = True

    def wait(self) -> Step:
        self.news.clear()
        assert self.news.wait(10)
        return self.shown[-1][1]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    found = Seen()
    monkeypatch.setattr(progress, "screen", lambda: found)
    monkeypatch.setattr(progress, "_PATIENCE", 0.001)
    monkeypatch.setattr(progress, "_PAUSE", 0.001)
    yield found


def test_steps_of_a_call_are_shown_until_it_is_over(seen: Seen) -> None:
    with working("place"):
        step("plans devices", 3, 7)
        while seen.wait() != Step("plans devices", 3, 7):
            pass
    assert seen.closed and {title for title, _ in seen.shown} == {"place"}
    assert progress._CURRENT is None


def test_of_calls_within_calls_the_outermost_is_shown(seen: Seen) -> None:
    with working("outer"):
        with working("inner"):
            step("inside")
            while seen.wait().words != "inside":
                pass
        assert not seen.closed
        step("outside")
        while seen.wait().words != "outside":
            pass
    assert {title for title, _ in seen.shown} == {"outer"}


def test_a_failing_call_ends_its_progress(seen: Seen) -> None:
    with pytest.raises(ZeroDivisionError), working("place"):
        _ = 1 / 0
    assert seen.closed
    with working("again"):
        seen.wait()
    assert seen.shown[-1][0] == "again"


def test_a_short_call_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Seen()
    monkeypatch.setattr(progress, "screen", lambda: found)
    with working("place"):
        step("quick")
    assert found.shown == []


def test_verbs_note_their_steps(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    for module in ("assembly.fitting.windows", "placement.devices.optima"):
        monkeypatch.setattr(f"anabranch.{module}.step", lambda words, *_: noted.append(words))
    ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"})
    import pandas as pd

    ab.fit_windows(pd.DataFrame({"kind": [1, 1, 2, 2] * 9, "ts": [float(n) for n in range(36)]}))
    assert noted == ["plans 2 devices, each by itself", "fits sizes", "fits durations",
                     "chooses size and timeout"]  # fmt: skip


# ---------------------------------------------------------------- where it is shown


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_without_a_terminal_there_is_no_screen_and_no_thread(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert screen() is None
    before = threading.active_count()
    with working("place"):
        assert threading.active_count() == before and progress._CURRENT is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("word", ["off", "0", "OFF"])
def test_it_is_off_by_a_setting(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    terminal(monkeypatch)
    monkeypatch.delenv(progress.SETTING, raising=False)
    assert isinstance(screen(), progress._Terminal)
    monkeypatch.setenv(progress.SETTING, word)
    assert screen() is None


def test_a_terminal_without_rich_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    monkeypatch.delenv(progress.SETTING, raising=False)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert screen() is None


def test_a_terminal_shows_a_bar_and_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal(monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = progress._Terminal()
    shown.show("place, 3 s", Step("[bold]resolves", 1, 2))
    shown._bar.refresh()
    shown.close()
    assert "place, 3 s: [bold]resolves" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")  # the line is empty again


def test_a_notebook_shows_html_in_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    handle = SimpleNamespace(update=pages.append)

    def display(page: str, display_id: bool) -> Any:
        pages.append(page)
        return handle

    notebook, shown = ModuleType("IPython"), ModuleType("IPython.display")
    notebook.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    shown.HTML, shown.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.delenv(progress.SETTING, raising=False)
    page = screen()
    assert page is not None
    page.show("fit, 1 s", Step("<b>", 1, 2))
    page.show("fit, 2 s", Step("then"))
    page.close()
    assert pages == [
        'fit, 1 s: &lt;b&gt; <progress value="1" max="2"></progress>',
        "fit, 2 s: then <progress ></progress>",
        "",
    ]


# ---------------------------------------------------------------- jobs of a batch


class Tracker:
    """Job 4 runs for three looks; job 5 is a streaming query's."""

    def __init__(self) -> None:
        self.looks = 0

    def getActiveJobsIds(self) -> list[int]:
        self.looks += 1
        return [4, 5] if self.looks <= 3 else [5]

    def getJobIdsForGroup(self, group: None) -> list[int]:
        return [1, 4]

    def getJobInfo(self, job: int) -> Any:
        return SimpleNamespace(stageIds=[7, 8, 9])

    def getStageInfo(self, stage: int) -> Any:
        known = {7: (4, 4), 8: (1, 6)}
        if stage not in known:
            return None
        done, of = known[stage]
        return SimpleNamespace(numCompletedTasks=done, numTasks=of)


def test_a_batch_job_is_shown_by_its_tasks(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, int, int]] = []
    monkeypatch.setattr(job_progress, "step", lambda *given: noted.append(given))
    monkeypatch.setattr(job_progress, "_PAUSE", 0.001)
    tracker = Tracker()
    assert job_progress.jobs_of(tracker) == [4]
    job_progress._show(tracker)
    assert noted == [("job 4, 5 of 10 tasks", 5, 10)] * 2
    assert tracker.looks == 5  # two more that found none


class Session:
    """A session of which only the settings matter."""

    def __init__(self, bars: str) -> None:
        conf = SimpleNamespace(get=lambda *_: bars)
        self.sparkContext = SimpleNamespace(getConf=lambda: conf, applicationId=f"app {bars}")


def test_a_session_is_followed_once_and_only_where_somebody_looks(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[Any] = []
    started = threading.Semaphore(0)

    def watch(context: Any) -> None:
        followed.append(context)
        started.release()

    monkeypatch.setattr(job_progress, "_watch", watch)
    monkeypatch.setattr(job_progress, "_FOLLOWED", set())
    session: Any = Session("false")
    job_progress.show_jobs(session)  # no terminal here
    monkeypatch.setattr(job_progress, "screen", lambda: seen)
    for one in (Session("true"), session, session):  # the first has Spark's own bars
        job_progress.show_jobs(one)
    assert started.acquire(timeout=10) and followed == [session.sparkContext]
    assert not started.acquire(blocking=False)


def test_a_running_job_is_found_with_its_tasks(spark: Any, tmp_path: Any) -> None:
    gate = tmp_path / "open"

    def wait(rows: Any) -> Any:
        import os
        import time

        while not os.path.exists(gate):
            time.sleep(0.01)
        return rows

    tracker = spark.sparkContext.statusTracker()
    job = threading.Thread(
        target=spark.sparkContext.range(2, numSlices=2).mapPartitions(wait).count
    )
    job.start()
    happens(lambda: job_progress.jobs_of(tracker))
    (number,) = job_progress.jobs_of(tracker)
    happens(lambda: job_progress.tasks_of(tracker, number) == (0, 2))
    gate.touch()
    job.join()
    happens(lambda: not job_progress.jobs_of(tracker))
