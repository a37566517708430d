"""Instances out of scattered events: policies, keys, and the kernel of one bucket.

As `ab.assembly` it holds what goes with `assemble`: ``ServiceStats``, what is known of services;
``WindowFit``, what `fit_windows` finds; and ``StateEstimate``, what `estimate_state` does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import _ServiceStats as ServiceStats  # type: ignore[attr-defined]
    from anabranch import _StateEstimate as StateEstimate  # type: ignore[attr-defined]
    from anabranch import _WindowFit as WindowFit  # type: ignore[attr-defined]

__all__ = ["ServiceStats", "StateEstimate", "WindowFit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        have = ", ".join(__all__)
        raise AttributeError(
            f"module 'anabranch.assembly' has no attribute {name!r}; it has {have}"
        )
    import anabranch  # which knows where each is, and loads what it needs

    return getattr(anabranch, f"assembly.{name}")
