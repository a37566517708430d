"""A daemon whose workers store slices as they are encoded, for `benchmarks.state` to compare."""

from __future__ import annotations

import anabranch.spark.operator as operator
from anabranch.spark.daemon import main

__all__: list[str] = []

if __name__ == "__main__":
    vars(operator)["stored"] = bytes
    vars(operator)["in_parts"] = lambda piece: [piece]
    main()
