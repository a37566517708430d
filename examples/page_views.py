"""Page views out of a web server's access log, and whether pages keep a promise.

::

    python examples/page_views.py access.log[.gz]

Requests for objects (images, scripts) belong to the page their referrer names. When a page view is
over, `ab.close.learned` finds out from earlier views of the page.
The same code runs on a stream: replace ``spark.read.text`` by ``spark.readStream.text`` and add
``watermark="1 minute"``.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab

LINE = r'^(\S+) \S+ \S+ \[([^\]]+)\] "\S+ (\S+)[^"]*" (\d+) \S+ "([^"]*)"'
OBJECTS = r"\.(png|css|js|ico|jpe?g|gif|svg|woff|ttf)$"


def requests(lines: Any) -> Any:
    """Client, time, page and path of every request; the page is null if nobody knows it."""
    parts = [F.regexp_extract("value", LINE, group) for group in range(1, 6)]
    client, moment, path, status, referrer = parts
    bare = F.regexp_replace(path, r"[?#].*$", "")
    page = F.regexp_replace(F.regexp_replace(referrer, r"[?#].*$", ""), r"^https?://[^/]*", "")
    known = F.when(referrer != "-", page)
    return lines.filter(F.col("value").rlike(LINE)).select(
        client.alias("client"),
        F.to_timestamp(moment, "dd/MMM/yyyy:HH:mm:ss Z").alias("ts"),
        F.when(bare.rlike(OBJECTS), known).otherwise(bare).alias("page"),
        bare.alias("path"),
        status.cast("int").alias("status"),
    )


def main(path: str) -> None:
    """Assemble the log and print what it shows."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    views = ab.assemble(
        requests(spark.read.text(path)),
        key=["page", "client"],
        close=ab.close.learned("60 seconds", risk=0.05),
        keep=["path", "status"],
    ).cache()
    print("the largest page views")
    views.select("page", "reason", "count", "usual_count", "duration").orderBy(
        F.desc("count")
    ).show(5, truncate=50)
    print("why windows closed")
    views.groupBy("reason").agg(F.count("*").alias("rows"), F.avg("duration")).show()
    promised = {"/projects/xdotool/": "20 seconds", "/": "20 seconds", "/robots.txt": "1 second"}
    print("which pages keep their promises: low counts what is unknown as broken, high as kept")
    ab.rank_services(views, promised, service="page").show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
