"""The objects of all windows, held once for all queries: oldest first, without gaps."""

from __future__ import annotations

import numpy as np

__all__ = ["Objects"]

_SPARE_BYTES = 4 << 20


class Objects:
    """Times, arrival numbers and points of objects; new ones at the end, old ones leave in front.

    There is room for half as many again, or for 4 MB: a window that has reached the end of its room
    is moved to the front, and the less room there is, the more often.

    Attributes
    ----------
    base
        How many objects have left: the first one's place in the whole stream.

    Examples
    --------
    >>> objects = Objects(1)
    >>> objects.append(np.array([3, 4]), np.array([0, 1]), np.array([[0.5], [0.7]]))
    >>> objects.drop(1)
    >>> objects.times.tolist(), objects.points.tolist(), objects.base, objects.ends
    ([4], [[0.7]], 1, 2)
    """

    def __init__(self, dim: int, base: int = 0) -> None:
        self.base = base
        self._times, self._seq = np.empty(0, np.int64), np.empty(0, np.int64)
        self._points = np.empty((0, dim))
        self._lo = self._hi = 0

    def __len__(self) -> int:
        return self._hi - self._lo

    @property
    def ends(self) -> int:
        """The place in the whole stream of the object that comes next."""
        return self.base + len(self)

    @property
    def times(self) -> np.ndarray:
        """When they came."""
        return self._times[self._lo : self._hi]

    @property
    def seq(self) -> np.ndarray:
        """Their arrival numbers."""
        return self._seq[self._lo : self._hi]

    @property
    def points(self) -> np.ndarray:
        """Their points, one row for each."""
        return self._points[self._lo : self._hi]

    @property
    def nbytes(self) -> int:
        """Bytes, with the room for more."""
        return self._times.nbytes + self._seq.nbytes + self._points.nbytes

    def append(self, t: np.ndarray, seq: np.ndarray, points: np.ndarray) -> None:
        """Add objects at the end."""
        if self._hi + len(t) > len(self._times):
            self._make_room(len(t))
        part = slice(self._hi, self._hi + len(t))
        self._times[part], self._seq[part], self._points[part] = t, seq, points
        self._hi += len(t)

    def _make_room(self, count: int) -> None:
        size = len(self)
        row = 16 + self._points.itemsize * self._points.shape[1]
        need = size + count
        room = need + max(need // 2, min(2 * need + 4096, _SPARE_BYTES // row))
        # Fresh memory costs more than moving to the front of what there is, unless much is unused.
        fits = need + size // 3 <= len(self._times) <= 2 * room
        for name in ("_times", "_seq", "_points"):
            old = getattr(self, name)
            new = old if fits else np.empty((room, *old.shape[1:]), old.dtype)
            new[:size] = old[self._lo : self._hi]
            setattr(self, name, new)
        self._lo, self._hi = 0, size

    def drop(self, count: int) -> None:
        """Let the oldest go."""
        self._lo += count
        self.base += count

    def insert(
        self, before: np.ndarray, t: np.ndarray, seq: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """Put objects before those of some arrival numbers, which move up; where they came to lie.

        Examples
        --------
        >>> objects = Objects(1)
        >>> objects.append(np.array([3, 9]), np.array([0, 1]), np.array([[0.0], [1.0]]))
        >>> objects.insert(np.array([1]), np.array([5]), np.array([1]), np.array([[0.5]])).tolist()
        [1]
        >>> objects.times.tolist(), objects.seq.tolist()
        ([3, 5, 9], [0, 1, 2])
        """
        held = self.seq
        places = np.searchsorted(held, before, "left")
        times = np.insert(self.times, places, t)
        numbers = np.insert(held + np.searchsorted(before, held, "right"), places, seq)
        everything = np.insert(self.points, places, points, axis=0)
        self._lo = self._hi = 0
        self.append(times, numbers, everything)
        return places
