"""Page views out of a web server's access log, and whether pages keep a promise.

::

    python examples/page_views.py access.log[.gz]

Any log in the combined format will do; a notebook finds it by ``ACCESS_LOG`` in the environment.
Requests for objects (images, scripts) belong to the page their referrer names. When a page view is
over, `ab.close.learned` finds out from earlier views of the page. The same code runs on a stream:
replace ``spark.read.text`` by ``spark.readStream.text`` and add ``watermark="1 minute"``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab

LINE = r'^(\S+) \S+ \S+ \[([^\]]+)\] "\S+ (\S+)[^"]*" (\d+) \S+ "([^"]*)"'
OBJECTS = r"\.(png|css|js|ico|jpe?g|gif|svg|woff|ttf)$"
PROMISED = {"/projects/xdotool/": "20 seconds", "/": "20 seconds", "/robots.txt": "1 second"}


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


# %% [markdown]
# ## Requests become page views
# One row for each view of a page by a client, when it is over.
# %%
if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("ACCESS_LOG") or sys.exit(__doc__)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder, workers=2).getOrCreate()
    close = ab.close.learned("60 seconds", risk=0.05)
    events = requests(spark.read.text(path))
    views = ab.assemble(events, key=["page", "client"], close=close, keep=["path", "status"])
    views = views.cache()
    views.select("page", "reason", "count", "usual_count", "duration").orderBy(
        F.desc("count"), "page"
    ).show(5, truncate=50)
    why = views.groupBy("reason").agg(
        F.count("*").alias("views"), F.avg("duration").alias("seconds")
    )
    why = why.orderBy(F.desc("views")).toPandas()
    print(why.to_string(index=False))
    # %% [markdown]
    # ## Which pages keep their promises
    # What is unknown counts as broken in `low`, and as kept in `high`. No request says that it is
    # the last: what the policy expects is taken for complete, at its risk of 5 %.
    # %%
    believed = "reason = 'complete'"
    ab.rank_services(views, PROMISED, service="page", complete=believed).show(truncate=False)
    spark.stop()
