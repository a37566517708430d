"""Where should a friend-finder run? Tell users which of their friends are near, at least traffic.

::

    python examples/friend_finder.py [facebook_combined.txt.gz]

The friends are pupils of a French school who are friends on Facebook, 1,437 friendships that come
with the package ``onadata``. Or name any edge list of two user ids a line, such as SNAP's
ego-Facebook, https://snap.stanford.edu/data/facebook_combined.txt.gz, of which two logical views
become 92,000 physical ones; a notebook finds it by ``EDGE_LIST`` in the environment. Every user's
phone has a GPS feed; the social network lives in the cloud.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from from_package import file_in

import anabranch as ab

me = ab.feed("gps", by="user")
them = ab.feed("gps", by="friend")
network = ab.feed("friends", by="user", home="cloud")

# Locations joined with the social network, once a user; then with the location of each friend.
located = ab.placement.template("located", {me: "user_rate", network: 0.01})
nearby = ab.placement.template(
    "nearby", {located: "rate", them: "rate_back"}, where="distance < 100 m"
)


def friendships(path: Path | None) -> pd.DataFrame:
    """Pairs of friends, and how often each is likely to need the other's location (invented)."""
    if path is None:
        table = pd.read_csv(file_in("onadata", "data/schoolfriends_edgelist.csv"))
        table = table[table["type"] == "facebook"].drop(columns="type").reset_index(drop=True)
        table.columns = ["user", "friend"]
    else:
        table = pd.read_csv(path, sep=r"\s+", comment="#", names=["user", "friend"])
    rng = np.random.default_rng(7)
    for column in ("rate", "rate_back"):
        meets = rng.random(len(table)) < 0.2
        table[column] = np.where(meets, 10.0 ** rng.uniform(-3, 0, len(table)), 0.0)
    # A phone need not locate itself for its friends more often than the keenest of them asks.
    table["user_rate"] = table.groupby("user")["rate"].transform("max")
    return table


def main(path: Path | None) -> ab.placement.Placement:
    """The plan of least traffic for the friends in a file."""
    plan = ab.place(nearby.over(friendships(path)), upload_cost=1.0, download_cost=0.5)
    print(plan.summary())
    return plan


# %% [markdown]
# ## What runs on phones, what in the cloud
# %%
if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("EDGE_LIST")
    plan = main(Path(given) if given else None)
    plan
    # %% [markdown]
    # ## Why a view is where it is
    # %%
    on_phones = [view for view, place in plan.location.items() if place != "cloud"]
    print(plan.explain(next(view for view in on_phones if view.startswith("nearby"))))
