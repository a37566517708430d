"""The same story in two newspapers, and whether people agree.

::

    pip install gensim wordllama
    python examples/news.py

50 short news items whose similarity people have judged in 1,225 pairs, and 300 more (Lee, Pincombe
and Welsh, 2005, in the package `gensim`, LGPL-2.1). A text's vector is the mean of the static
vectors of its words (package `wordllama`, MIT). Items have no times; here one comes each minute.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from from_package import file_in
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab

TEXTS = "test/test_data/"


def items(name: str, encoding: str) -> pd.DataFrame:
    """Texts of a file, one each minute, with their vectors."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    texts = file_in("gensim", TEXTS + name).read_text(encoding).splitlines()
    tokens = file_in("wordllama", "tokenizers/l2_supercat_tokenizer_config.json")
    (words,) = load_file(file_in("wordllama", "weights/l2_supercat_256.safetensors")).values()
    read = Tokenizer.from_file(str(tokens)).encode_batch(texts, add_special_tokens=False)
    vectors = [words[one.ids].astype(np.float32).mean(axis=0) for one in read]
    times = pd.date_range("2026-03-01", periods=len(texts), freq="min")
    return pd.DataFrame({"id": np.arange(len(texts)), "ts": times, "text": texts, "v": vectors})


def people() -> np.ndarray:
    """What people said: the similarity of each two of the 50 items, from 0 to 1."""
    return np.loadtxt(file_in("gensim", TEXTS + "similarities0-1.txt"))


def auc(score: np.ndarray, same: np.ndarray) -> float:
    """How often a pair that is the same scores above one that is not."""
    above = score[same][:, None] - score[~same][None, :]
    return float(np.mean((above > 0) + (above == 0) / 2))


# %% [markdown]
# ## Against people
# All pairs of the 50 items with their cosine; people call two items the same from 0.6 on.
# %%
if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder, workers=2).getOrCreate()
    lee = spark.createDataFrame(items("lee.cor", "latin-1"))
    scored = ab.correlate(lee, where=ab.cosine("v") >= -1, window="1 hour").toPandas()
    same = people()[scored.left_id, scored.right_id] >= 0.6
    print(f"{len(scored):,} pairs, area under the curve {auc(scored.score.to_numpy(), same):.3f}")
    for cut in (0.4, 0.5, 0.6):
        found = same[scored.score >= cut]
        print(f"cosine >= {cut}: {len(found):3} pairs, {found.mean():.0%} of them the same")
    # %% [markdown]
    # ## Two newspapers
    # The other 300 items come by turns in one paper and the other, without those that repeat an
    # earlier one. Pairs are put together into stories, which close after two silent hours.
    # %%
    every = spark.createDataFrame(items("lee_background.cor", "utf-8"))
    other = ab.dedupe(every, where=ab.cosine("v") >= 0.95, window="5 hours").cache()
    print(f"{every.count() - other.count()} of {every.count()} items repeat an earlier one")
    left, right = other.filter("id % 2 = 0"), other.filter("id % 2 = 1")
    pairs = ab.correlate(left, right, where=ab.cosine("v") >= 0.8, window="5 hours", keep="text")
    start = [F.substring(f"{side}_text", 1, 48).alias(side) for side in ("left", "right")]
    pairs.orderBy(F.desc("score")).select(F.round("score", 3), *start).show(10, truncate=False)
    stories = ab.groups(pairs, gap="2 hours").filter("event = 'closed'").orderBy(F.desc("rows"))
    stories.select("rows", "pairs", "left_members", "right_members").show(5, truncate=False)
    spark.stop()
