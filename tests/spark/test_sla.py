"""Promises kept, broken and unknown, of tables and of streams."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.assembly.service_stats.wilson import wilson_lower, wilson_upper
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.spark.frames import ASSEMBLY_SIZE
from tests.spark.events import CALL, events, expected, micros
from tests.spark.feeds import SECOND, Feed

SCHEMA = """kind string, client long, seq int, revision int, opened timestamp, closed timestamp,
            duration double, count_ratio double"""
PROMISES = {"a": "2 seconds", "b": 1.5}
LIMITS = {"a": 2.0, "b": 1.5}
BY_SHARE = {"complete": "count_ratio >= 1"}
HOUR = 3600


def rows(n: int = 300, seed: int = 1) -> list[tuple[Any, ...]]:
    """Instances, some of them revised; times are naive UTC."""
    random = np.random.default_rng(seed)
    made: list[tuple[Any, ...]] = []
    for number in range(n):
        kind = "abc"[random.integers(3)]
        closed = 1_700_000_000 + int(random.integers(3 * HOUR))
        took = float(random.integers(1, 40)) / 10
        share = [None, 0.5, 1.0, 1.0][random.integers(4)]
        opened = datetime.utcfromtimestamp(closed - 5)
        first = (kind, number, 0, 0, opened, datetime.utcfromtimestamp(closed), took, share)
        made.append(first)
        if random.random() < 0.2:
            again = datetime.utcfromtimestamp(closed + 7)
            made.append((kind, number, 0, 1, opened, again, took + 1, 1.0))
    return made


def verdict(row: tuple[Any, ...]) -> str:
    if row[6] > LIMITS[row[0]]:
        return "violated"
    return "met" if row[7] is not None and row[7] >= 1 else "unknown"


def tallies(made: list[tuple[Any, ...]]) -> dict[Any, Counter]:
    """Verdicts by service and hour, of the last revision of each instance."""
    last = {(r[0], r[1]): r for r in made}  # later rows win
    found: dict[Any, Counter] = defaultdict(Counter)
    for row in last.values():
        if row[0] in LIMITS:
            hour = micros(row[5]) // SECOND // HOUR * HOUR
            found[row[0], hour][verdict(row)] += 1
    return found


def test_compliance_of_a_table(spark: Any) -> None:
    made = rows()
    found = ab.sla(spark.createDataFrame(made, SCHEMA), PROMISES, **BY_SHARE).collect()
    want = tallies(made)
    assert len(found) == len(want) > 4
    for row in found:
        tally = want[row["service"], micros(row["period"]) // SECOND]
        assert (row["met"], row["violated"], row["unknown"]) == (
            tally["met"],
            tally["violated"],
            tally["unknown"],
        )
        n, sure = row["instances"], row["met"] + row["violated"]
        most = row["met"] + row["unknown"]
        assert (row["low"], row["high"]) == pytest.approx((row["met"] / n, most / n))
        assert row["compliance"] == (row["met"] / n if n == sure else None)
        assert row["lower"] == pytest.approx(wilson_lower(row["met"], n))
        assert row["upper"] == pytest.approx(wilson_upper(most, n))
        assert row["promised"] == LIMITS[row["service"]]
    assert any(row["unknown"] for row in found)


def test_what_is_complete_can_be_said(spark: Any) -> None:
    frame = spark.createDataFrame(rows(), SCHEMA)
    promises = spark.createDataFrame([("a", 2.0)], "service string, promised double")
    found = ab.sla(frame, promises, complete=F.lit(True)).collect()
    assert found and all(row["unknown"] == 0 for row in found)


def orders(spark: Any) -> Any:
    """Results of lab orders: 1 to 5 of each, a minute or so apart."""
    return spark.sql(
        """SELECT order % 2 AS ward, order, timestamp_seconds(1700000000 + 977 * order
                  + part * (40 + 13 * (order % 7))) AS ts
           FROM (SELECT id AS order, explode(sequence(0, id % 5)) AS part FROM range(200))"""
    )


def true_share(results: Any, limit: float) -> float:
    spans = results.groupBy("order").agg(
        ((F.max("ts").cast("double") - F.min("ts").cast("double")) <= limit).alias("met")
    )
    return float(spans.select(F.avg(F.col("met").cast("int"))).first()[0])


SIZES = {
    "learned": ab.close.learned("10 minutes"),
    "gap": ab.close.gap("10 minutes"),
    "after": ab.close.after("10 minutes"),
    "count": ab.close.count(6, "10 minutes"),
}


@pytest.mark.parametrize(
    "policy",
    [pytest.param(name, marks=() if name == "learned" else pytest.mark.slow) for name in SIZES],
)
def test_orders_of_several_sizes_are_bounded_not_guessed(spark: Any, policy: str) -> None:
    """Nobody said how many results an order has, so no policy proves that it has them all."""
    results = orders(spark)
    assert 0.4 < true_share(results, 120) < 0.7
    shapes = {"service": "ward", "period": "1000 days"}
    found = ab.assemble(results, close=SIZES[policy], key=["ward", "order"])
    instances = found.filter("reason <> 'flush'").cache()
    share = true_share(results.join(instances.select("order"), "order", "left_semi"), 120)
    wards = ab.sla(instances, 120, **shapes).collect()
    met, violated, unknown, n = (
        sum(row[name] for row in wards) for name in ("met", "violated", "unknown", "instances")
    )
    assert met + violated + unknown == n > 190
    assert met == 0 and unknown / n == pytest.approx(share, abs=1e-12)
    for row in wards:
        assert row["compliance"] is None or not row["unknown"]
    for complete in (True, "count >= 1", F.lit(True), lambda frame: frame["count"] > 0):
        (row, other) = ab.sla(instances, "2 minutes", complete=complete, **shapes).collect()
        assert row["unknown"] == other["unknown"] == 0
        both = row["met"] + other["met"]
        assert both / (row["instances"] + other["instances"]) == pytest.approx(share)
        assert row["low"] == row["high"] == row["compliance"]
    instances.unpersist()


def test_a_declared_size_and_an_end_marker_prove_it(spark: Any) -> None:
    calls = spark.sql(
        """SELECT 'a' AS kind, id div 3 AS client, timestamp_seconds(1700000000 + id) AS ts,
           id % 3 = 2 AS last FROM range(30) WHERE id NOT IN (7, 11)"""
    )
    close = ab.close.count(3, "3 minutes")
    found = ab.assemble(calls, key=["kind", "client"], close=close, keep="last")
    declared = ab.sla(found, 5, period="1 day").first()
    assert (declared["met"], declared["unknown"], declared["low"]) == (8, 2, 0.8)
    believed = found.withColumn("reason", F.lit("complete"))  # as close.learned says
    (row,) = ab.sla(believed, 5, period="1 day").collect()
    assert (row["met"], row["unknown"]) == (0, 10)
    (row,) = ab.sla(believed, 5, period="1 day", complete="reason = 'complete'").collect()
    assert (row["met"], row["unknown"]) == (10, 0)
    learned = ab.assemble(calls, key=["kind", "client"], close=ab.close.learned(cap=3))
    capped = learned.withColumn("reason", F.lit("full")).withColumn("usual_count", F.col("count"))
    (row,) = ab.sla(capped, 5, period="1 day").collect()  # the cap is no declared size
    assert (row["met"], row["unknown"]) == (0, 10)
    for given, size in ((close, 3), (ab.close.count(3, "3 minutes", declared=False), 0)):
        usual = ab.assemble(calls, key=["kind", "client"], close=given)
        assert usual.schema["seq"].metadata[ASSEMBLY_SIZE] == size
    (row,) = ab.sla(usual, 5, period="1 day").collect()  # as close=fit: most have as many
    assert (row["met"], row["unknown"]) == (0, 10)
    ended = found.withColumn("reason", F.lit("end"))
    for seq, met in ((0, 10), (1, 0)):  # what came before may belong to a second window
        numbered = ended.withColumn("seq", F.lit(seq))
        assert ab.sla(numbered, 5, period="1 day").first()["met"] == met
    marked = ab.sla(found, 5, period="1 day", complete="exists(items, x -> x.last)").first()
    assert (marked["met"], marked["unknown"]) == (9, 1)
    assert marked["high"] == 1 and marked["compliance"] is None


def test_one_promise_for_all_and_columns_by_their_own_names(spark: Any, tmp_path: Path) -> None:
    frame = instances_of(spark, "if(id < 3, 'a', 'b')")
    for promise in ("1 second", 1, 1.0, timedelta(seconds=1)):
        found = {r["service"]: r["met"] for r in ab.sla(frame, promise).collect()}
        assert found == {"a": 2, "b": 0}
    table = spark.createDataFrame([("b", 2.0)], "ward string, `at most` double")
    shape = {"promise_columns": ("ward", "at most")}
    (row,) = ab.sla(frame, table, **shape).collect()
    assert (row["service"], row["promised"], row["met"]) == ("b", 2.0, 2)
    assert ab.rank_services(frame, table, **shape).first()["service"] == "b"
    known = ab.assembly.ServiceStats(tmp_path, table, complete="duration < 1.8", **shape)
    known.update(frame)
    summary = known.get("b")
    assert (summary.met, summary.violated, summary.unknown) == (1, 1, 1)
    assert (summary.low, summary.high, summary.compliance) == (1 / 3, 2 / 3, None)
    (line,) = [r for r in known.table() if r["service"] == "b"]
    assert (line["low"], line["high"]) == (1 / 3, 2 / 3)
    nested = table.select(F.struct("ward", F.col("at most").alias("limit")).alias("of"))
    for columns in (("of.ward", "of.limit"), [F.col("of.ward"), F.col("of.limit") * 1]):
        (row,) = ab.sla(frame, nested, promise_columns=columns).collect()
        assert (row["service"], row["promised"], row["met"]) == ("b", 2.0, 2)
        assert ab.rank_services(frame, nested, promise_columns=columns).first()["service"] == "b"
    known = ab.assembly.ServiceStats(tmp_path / "nested", nested, promise_columns=columns)
    known.update(frame)
    assert known.get("b").met == 2
    with pytest.raises(InvalidCall, match="name yours, for example promise_columns="):
        ab.sla(frame, table)


def test_ranking(spark: Any) -> None:
    made = [r for r in rows(seed=2) if r[3] == 0]
    frame = spark.createDataFrame(made, SCHEMA)
    tally: dict[str, Counter] = defaultdict(Counter)
    for row in made:
        if row[0] in LIMITS:
            tally[row[0]][verdict(row)] += 1
    lower = {name: wilson_lower(t["met"], sum(t.values())) for name, t in tally.items()}
    found = ab.rank_services(frame, PROMISES, **BY_SHARE).collect()
    assert [r["service"] for r in found] == sorted(lower, key=lambda s: -lower[s])
    assert {r["service"]: r["score"] for r in found} == pytest.approx(lower)
    worst = found[-1]["service"]
    liked = ab.rank_services(frame, PROMISES, **BY_SHARE, prefer={worst: 1.0}, weight=0.9).collect()
    assert liked[0]["service"] == worst
    assert liked[0]["score"] == pytest.approx(0.1 * lower[worst] + 0.9)
    assert len(ab.rank_services(frame, PROMISES, **BY_SHARE, top=1).collect()) == 1
    now = max(micros(r[5]) for r in made) / SECOND
    fading = {
        r["service"]: r
        for r in ab.rank_services(frame, PROMISES, **BY_SHARE, half_life="1 hour").collect()
    }
    for name in LIMITS:
        of = [r for r in made if r[0] == name and verdict(r) == "met"]
        weight = sum(0.5 ** ((now - micros(r[5]) / SECOND) / 3600) for r in of)
        assert fading[name]["met"] == pytest.approx(weight)


def test_what_is_old_fades_beside_what_others_did_since(spark: Any) -> None:
    """By the newest of all: a service that was good a day ago has little left to show."""
    day = [datetime(2024, 1, 1), datetime(2024, 1, 2)]
    made = [
        (name, n, 0, 0, t, t, 1.0, 1.0) for name, t in zip("ab", day, strict=True) for n in range(5)
    ]
    frame = spark.createDataFrame(made, SCHEMA)
    found = {
        r["service"]: r
        for r in ab.rank_services(frame, PROMISES, **BY_SHARE, half_life="12 hours").collect()
    }
    assert found["a"]["met"] == pytest.approx(5 / 4) and found["b"]["met"] == 5
    assert found["a"]["score"] == pytest.approx(wilson_lower(5 / 4, 5 / 4))
    for life in ("1 minute", "2 minutes 5 seconds", "1 microsecond"):  # nothing, next to nothing
        found = {
            r["service"]: r
            for r in ab.rank_services(frame, PROMISES, **BY_SHARE, half_life=life).collect()
        }
        assert found["a"]["met"] < 1e-200 and found["a"]["score"] == pytest.approx(0, abs=1e-9)
        assert found["b"]["met"] == 5


def test_ties_go_to_the_service_with_more_instances(spark: Any) -> None:
    moment = datetime(2024, 1, 1)
    few = [("a", n, 0, 0, moment, moment, 9.0, 1.0) for n in range(3)]
    many = [("b", n, 0, 0, moment, moment, 9.0, 1.0) for n in range(9)]
    found = ab.rank_services(
        spark.createDataFrame(few + many, SCHEMA), PROMISES, **BY_SHARE
    ).collect()
    assert [(r["service"], r["score"]) for r in found] == [("b", 0.0), ("a", 0.0)]


@pytest.fixture(scope="module")
def revised(spark: Any, tmp_path_factory: Any) -> Any:
    """Six clients at the same instant; every other one calls once more after its row is out."""
    calls = spark.sql(
        """SELECT 'a' AS kind, id % 6 AS client,
           timestamp_millis(1700000000000 + if(id < 6, 0, 1500)) AS ts
           FROM range(12) WHERE id < 6 OR id % 2 = 0"""
    )
    path = str(tmp_path_factory.mktemp("revised") / "rows")
    found = ab.assemble(calls, key=["kind", "client"], close=ab.close.after("1 second"))
    found.write.parquet(path)
    return spark.read.parquet(path)


def test_instances_are_never_taken_for_one(spark: Any, revised: Any) -> None:
    assert revised.count() == 9 and revised.filter("revision = 1").count() == 3

    def tally(frame: Any) -> tuple[int, ...]:
        (row,) = ab.sla(frame, {"a": "1 second"}, complete=F.lit(True), period="1 day").collect()
        return row["instances"], row["met"], row["violated"]

    assert tally(revised) == (6, 3, 3)
    lacking = revised.drop("client")
    for call, message in (
        (lambda: ab.sla(lacking, PROMISES), "it lacks client; it has kind, seq"),
        (lambda: ab.rank_services(lacking, PROMISES), "it lacks client"),
        (lambda: ab.sla(revised.drop("opened"), PROMISES), "it lacks opened"),
        (lambda: ab.sla(revised.drop("seq"), PROMISES), "it lacks a key before seq, seq"),
        (
            lambda: ab.assembly.ServiceStats("x").update(lacking),
            "ServiceStats.update cannot start: instances has",
        ),
    ):
        with pytest.raises(InvalidCall) as error:
            call()
        assert message in str(error.value)
    # With nothing to merge, nothing is needed for it.
    assert tally(lacking.filter("revision = 0")) == (6, 6, 0)
    assert tally(lacking.filter("revision = 0").drop("revision", "seq", "opened")) == (6, 6, 0)
    # Rows that do not say how they were assembled: those that look alike count by their first.
    bare = spark.createDataFrame(lacking.collect(), lacking.schema.simpleString())
    assert tally(bare) == (6, 6, 0)


def test_statistics_of_tables_adds_up(
    spark: Any, revised: Any, tmp_path: Path, caplog: Any
) -> None:
    for promises in (None, {"a": "1 second", "b": "1 second"}):
        known = ab.assembly.ServiceStats(tmp_path / str(promises is None), promises)
        with caplog.at_level("INFO", "anabranch"):
            known.update(revised)
        assert "ServiceStats.update runs a job" in caplog.text
        first = known.get("a")
        assert (first.count, first.mean) == (6.0, pytest.approx(0.75))  # of the last revisions
        known.update(revised.filter("revision = 0").withColumn("kind", F.lit("b")))
        known.update(revised.filter("revision = 0"), 0)  # a stream begins
        assert (known.get("a").count, known.get("b").count) == (12.0, 6.0)
        known.store.compact()
        known.update(revised.filter("client = 0"))
        assert known.get("a").count == 13.0
    assert known.get("a", half_life="1 day").violated == 4.0
    nested = revised.select("*", F.struct("kind", "duration").alias("of"))
    for n, form in enumerate((("of.kind", "of.duration"), (F.upper("kind"), F.col("duration")))):
        other = ab.assembly.ServiceStats(tmp_path / str(n), 1, service=form[0], metric=form[1])
        other.update(nested)
        assert (other.get("aA"[n]).count, other.get("aA"[n]).violated) == (6.0, 3.0)
    for half_life, message in (
        ("0 seconds", "half_life must be longer than 0 seconds"),
        ("x", "half_life: 'x' is"),
    ):
        with pytest.raises(InvalidCall, match=message):
            known.get("a", half_life=half_life)


@pytest.mark.slow
def test_streams(spark: Any, tmp_path: Path) -> None:
    """Compliance, a standing ranking and statistics, straight from `assemble`."""
    batches = events(4, rows=30, pages=3, seed=11)
    closing = ab.close.count(2, "1 second")
    feed = Feed(tmp_path, (CALL, CALL), idle=True).add(batches)
    shape = {"key": ["page", "client"], "response": "ms", "close": closing, "watermark": "1 second"}
    shape["keep"] = ["service", "ms"]
    promises = {f"/{n}": "400 ms" for n in range(3)}
    told = expected(spark, batches, closing, SECOND)
    want: Counter = Counter()
    for row in told:
        took = (row["end"] - row["first"]) / 1e6
        if row["revision"]:
            want[row["key"][0], "revised"] += 1
        elif took > 0.4:
            want[row["key"][0], "violated"] += 1
        else:
            want[row["key"][0], "met" if row["count"] >= 2 else "unknown"] += 1
    assert {kind for _, kind in want} == {"met", "violated", "unknown", "revised"}

    instances = ab.assemble(feed.streams(spark), **shape)
    rated = ab.sla(instances, promises, service="page", period="1 second")
    feed.run(rated, "rated")
    got = feed.output(spark, "rated").groupBy("service").sum("met", "violated", "unknown").collect()
    assert got
    for service, *counts in got:  # periods that the watermark has passed
        for kind, count in zip(("met", "violated", "unknown"), counts, strict=True):
            assert 0 <= count <= want[service, kind]

    known = ab.assembly.ServiceStats(
        tmp_path / "known", promises, service="page", period="1 minute"
    )
    query = (
        ab.assemble(feed.streams(spark), **shape)
        .writeStream.foreachBatch(known.update)
        .option("checkpointLocation", str(tmp_path / "k"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    for page in promises:
        summary = known.get(page)
        durations = [
            (r["end"] - r["first"]) / 1e6 for r in told if r["key"][0] == page and not r["revision"]
        ]
        assert summary.count == len(durations)
        assert summary.mean == pytest.approx(np.mean(durations))
        assert summary.quantile(0.5) == pytest.approx(
            sorted(durations)[(len(durations) + 1) // 2 - 1], rel=0.0101
        )
        assert summary.met == want[page, "met"] and summary.violated == want[page, "violated"]
    assert len(known.table()) >= 3
    # The folder is this query's: one that counts its batches from 0 again would take their places.
    with pytest.raises(StateMismatch, match=f"holds the batches of query {query.id}"):
        known.store.write(0, [], "another")

    ranked = ab.rank_services(ab.assemble(feed.streams(spark), **shape), promises, service="page")
    query = (
        ranked.writeStream.format("memory")
        .queryName("ranked")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "r"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    for row in spark.table("ranked").collect():
        page = row["service"]
        assert row["met"] == want[page, "met"] and row["violated"] == want[page, "violated"]


def instances_of(spark: Any, service: str = "'a'") -> Any:
    """Six instances of 0.4 to 2.4 seconds."""
    return spark.sql(
        f"""SELECT {service} AS kind, id AS client, 0 AS seq, 0 AS revision,
            timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
            0.4D * (id + 1) AS duration, 1D AS count_ratio, 'full' AS reason, 1 AS count,
            1 AS usual_count FROM range(6)"""
    )


def test_a_figure_that_is_no_number_breaks_no_promise(spark: Any, tmp_path: Path) -> None:
    nothing = F.when(F.col("client") == 0, float("nan")).when(
        F.col("client") > 1, F.col("duration")
    )
    frame = instances_of(spark).withColumn("duration", nothing)  # NaN, null, and four numbers
    (row,) = ab.sla(frame, 2).collect()
    assert (row["met"], row["violated"], row["unknown"]) == (3, 1, 2)
    known = ab.assembly.ServiceStats(tmp_path, 2)
    known.update(frame)
    found = known.get("a")
    assert (found.met, found.violated, found.unknown, found.count) == (3, 1, 2, 4)


def test_promises_are_made_once(spark: Any, tmp_path: Path) -> None:
    """A service that is there twice would count twice, and null or NaN be kept by everybody."""
    frame = instances_of(spark)

    def table(*rows: Any) -> Any:
        return spark.createDataFrame(list(rows), "service string, promised double")

    for promises, message in (
        (table(("a", 1.0), ("a", 1.0)), "promises has 2 rows of 'a': keep one of each service"),
        (table(("a", 1.0), ("a", 2.0)), "promises has 2 rows of 'a'"),
        (table(("a", None)), "promise of 'a' is no finite number"),
        (table(("b", 1.0), ("a", float("nan"))), "promise of 'a' is no finite number"),
        (table((None, 1.0)), "promises has a row without a service"),
        (table(("a", 1.0)).selectExpr("service", "'2 s' AS promised"), "is string; it must be a"),
        ({"a": float("nan")}, "promise of 'a': nan is no finite number"),
        ({"a": None}, "promise of 'a': None is not a duration"),
        ({"a": "-1 second"}, "promise of 'a': '-1 second' is negative"),
        ({"a": -1}, "promise of 'a' must not be negative"),
        (table(("a", -1.0)), "promise of 'a' must not be negative: a duration never is; got -1.0"),
    ):
        for call in (
            lambda p: ab.sla(frame, p),
            lambda p: ab.rank_services(frame, p),
            lambda p: ab.assembly.ServiceStats(tmp_path, p),
        ):
            with pytest.raises(InvalidCall) as error:
                call(promises)
            assert message in str(error.value)
    (row,) = ab.sla(frame, table(("a", 1.0), ("b", 9.0))).collect()
    assert (row["instances"], row["met"], row["violated"]) == (6, 2, 4)


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("date'2024-05-01'", date(2024, 5, 1)),
        ("cast(1.5 AS decimal(10, 2))", Decimal("1.50")),
        ("7L", 7),
        ("X'00FF'", b"\x00\xff"),
    ],
    ids=["date", "decimal", "long", "binary"],
)
def test_services_of_any_type(spark: Any, tmp_path: Path, service: str, name: Any) -> None:
    frame = instances_of(spark, service)
    known = ab.assembly.ServiceStats(f"file://{tmp_path}/known", {name: "1 second"})
    known.update(frame)
    assert known.get(name).count == 6 and known.get(name).met == 2
    (best,) = ab.rank_services(frame, {name: "1 second"}, prefer={name: 0.5}, weight=1).collect()
    assert best["preference"] == best["score"] == 0.5


def test_rows_without_a_service_or_an_end_are_left_out(spark: Any, tmp_path: Path) -> None:
    frame = instances_of(spark, "if(id > 1, 'a', null)")
    frame = frame.withColumn("closed", F.when(F.col("client") != 5, F.col("closed")))
    known = ab.assembly.ServiceStats(tmp_path)
    known.update(frame)
    assert [(row["service"], row["count"]) for row in known.table()] == [("a", 3.0)]
    absent = frame.withColumn("kind", F.lit(float("nan")))
    known.update(absent)
    assert len(known.table()) == 1


def test_wrong_calls(spark: Any) -> None:
    said = ("'complete' AS reason", "1 AS count", "1 AS usual_count")
    frame = spark.createDataFrame(rows(5), SCHEMA).selectExpr("*", *said)
    tick = spark.readStream.format("rate").load()
    live = tick.selectExpr(
        "'a' AS kind",
        "0 AS revision",
        "timestamp AS closed",
        "1D AS duration",
        "1D AS count_ratio",
        *said,
    )
    dated = frame.withColumn("kind", F.lit(date(2024, 5, 1)))
    known = ab.assembly.ServiceStats("x")
    for call, message in (
        (lambda: ab.sla(frame, {}), "promises is empty"),
        (lambda: ab.sla(frame, {"a": "soon"}), "promise of 'a': 'soon' is not a duration"),
        (lambda: ab.sla(frame, {"a": True}), "promise of 'a': True is no finite number"),
        (lambda: ab.sla(frame, PROMISES, service="x"), "no column 'x' in instances; it has kind"),
        (lambda: ab.sla(frame, PROMISES, service="x"), "name yours with service="),
        (lambda: ab.sla(frame, 5, complete="sum(count) > 3"), "'sum(count) > 3' is no condition"),
        (lambda: ab.sla(frame, 5, complete="explode(array(true))"), "is no condition on these"),
        (lambda: ab.sla(frame, 5, complete="1 in (SELECT 1)"), "text may hold no sub-query"),
        (lambda: known.update(frame, btch=1), "no btch=; there is instances=, batch="),
        (lambda: ab.sla(frame, PROMISES, service=None), "service must be the name of a column"),
        (lambda: ab.sla(frame, PROMISES, metric=["a"]), "metric must be the name of a column"),
        (lambda: ab.sla(frame, 5, metric=np.ones(2)), "metric must be the name of a column"),
        (
            lambda: ab.sla(frame, PROMISES, metric="kind"),
            "column 'kind' of instances is string; it",
        ),
        (lambda: ab.sla(frame, PROMISES, complete=5), "complete must be a condition: SQL text"),
        (lambda: ab.sla(frame, PROMISES, complete="size >= 1"), "no condition on these columns"),
        (lambda: ab.sla(frame, PROMISES, complete=F.col("kind")), "got values of type string"),
        (lambda: ab.sla(frame.drop("reason"), PROMISES), "instances has no reason; say it with"),
        (lambda: ab.sla(frame.drop("reason"), PROMISES), "by an end marker, complete='exists("),
        (lambda: ab.sla(frame, "soon"), "promises: 'soon' is not a duration"),
        (lambda: ab.sla(frame, frame, promise_columns="x"), "must be the names of two columns"),
        (lambda: ab.sla(frame, PROMISES, period="0 s"), "period must be longer than 0 seconds"),
        (lambda: ab.sla(frame, PROMISES, period=None), "period: None is not a duration"),
        (lambda: ab.sla(dated, PROMISES), "promises names 'a', but column 'kind' is date"),
        (lambda: ab.sla(frame, {None: 1.0}), "promises names None, but column 'kind' is string"),
        (lambda: ab.sla(5, PROMISES), "instances must be a DataFrame of ab.assemble, got int"),
        (lambda: ab.sla(None, PROMISES), "instances must be a DataFrame of ab.assemble, got None"),
        (lambda: ab.sla(frame, None), "promises must be {service: promised}, a DataFrame"),
        (lambda: ab.sla(frame, [1]), "promises must be {service: promised}, a DataFrame"),
        (lambda: ab.sla(frame, frame), "promises has no column 'service'"),
        (
            lambda: ab.rank_services(frame, None),
            "promises must be {service: promised}, a DataFrame",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, weight=2),
            "weight must be a number between 0 and 1",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, weight="x"),
            "weight must be a number between 0",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, half_life="x"),
            "half_life: 'x' is not a duration",
        ),
        (
            lambda: ab.rank_services(live, PROMISES, half_life="1 day"),
            "for a stream keep ab.assembly.ServiceStats",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, prefer={"a": 7}),
            "preference for 'a' must be a number from 0 to 1, got 7",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, prefer={"a": float("nan")}),
            "number from 0 to 1",
        ),
        (lambda: ab.rank_services(frame, PROMISES, prefer=["a"]), "prefer must be {service: pref"),
        (
            lambda: ab.rank_services(dated, {date(2024, 5, 1): 1}, prefer={"a": 1}),
            "prefer names 'a'",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, prefer={"a": 1, "/serch": 1}),
            "prefer names '/serch', which has no promise; leave it out or correct it",
        ),
        (
            lambda: ab.rank_services(frame, "1 second", prefer={"a": 1, "/serch": 1}),
            "prefer names '/serch', which no instance has",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, top=1.5),
            "top must be a whole number of at least 1",
        ),
        (
            lambda: ab.rank_services(frame, PROMISES, top=0),
            "top must be a whole number of at least 1",
        ),
        (
            lambda: ab.assembly.ServiceStats("x", period="0 s"),
            "period must be longer than 0 seconds",
        ),
        (lambda: ab.assembly.ServiceStats("x", period=None), "period: None is not a duration"),
        (
            lambda: ab.assembly.ServiceStats(None),
            "path must be a folder or the address of one, got None",
        ),
        (
            lambda: ab.assembly.ServiceStats("x", [1]),
            "promises must be {service: promised}, a DataFrame",
        ),
        (
            lambda: ab.assembly.ServiceStats("x", service=5),
            "service must be the name of a column, or a Column, got 5",
        ),
        (lambda: known.update(None), "instances must be a DataFrame of ab.assemble, got None"),
        (lambda: known.update(frame, "x"), "batch must be the number of a micro-batch, got 'x'"),
        (lambda: known.update(frame, -1), "batch must be the number of a micro-batch, got -1"),
        (lambda: known.update(live), "foreachBatch(known.update)"),
        (lambda: known.update(frame.drop("duration")), "no column 'duration' in instances"),
        (lambda: known.update(frame.drop("revision"), 0), "no column 'revision' in instances"),
        (
            lambda: known.update(frame.withColumn("kind", F.array("kind"))),
            "service column 'kind' is array<string>, which names no service",
        ),
        (lambda: known.get("a", half_life=5), "half_life: 5 is not a duration"),
    ):
        with pytest.raises(InvalidCall) as error:
            call()
        assert message in str(error.value)
    assert not Path("x").exists()
