"""The objects of all windows, held once for all queries: oldest first, without gaps."""

from __future__ import annotations

import numpy as np

__all__ = ["Objects"]

_SPARE_BYTES = 4 << 20


_COLUMNS = ("_times", "_seq", "_points", "_marks")


class Objects:
    """Times, arrival numbers, points and marks of objects; new ones at the end, old ones leave in
    front.

    There is room for half as many again, or for 4 MB: a window that has reached the end of its room
    is moved to the front, and the less room there is, the more often.

    Attributes
    ----------
    base
        How many objects have left: the first one's place in the whole stream.

    Examples
    --------
    >>> objects, none = Objects(1, 0), np.empty((2, 0), np.int64)
    >>> objects.append(np.array([3, 4]), np.array([0, 1]), np.array([[0.5], [0.7]]), none)
    >>> objects.drop(1)
    >>> objects.times.tolist(), objects.points.tolist(), objects.base, objects.ends
    ([4], [[0.7]], 1, 2)
    """

    def __init__(self, dim: int, tests: int, base: int = 0) -> None:
        self.base = base
        self._times, self._seq = np.empty(0, np.int64), np.empty(0, np.int64)
        self._points = np.empty((0, dim))
        self._marks = np.empty((0, tests), np.int64)
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
    def marks(self) -> np.ndarray:
        """Their marks, one row for each."""
        return self._marks[self._lo : self._hi]

    @property
    def nbytes(self) -> int:
        """Bytes, with the room for more."""
        return sum(getattr(self, name).nbytes for name in _COLUMNS)

    def append(self, t: np.ndarray, seq: np.ndarray, points: np.ndarray, marks: np.ndarray) -> None:
        """Add objects at the end."""
        if self._hi + len(t) > len(self._times):
            self._make_room(len(t))
        part = slice(self._hi, self._hi + len(t))
        for name, values in zip(_COLUMNS, (t, seq, points, marks), strict=True):
            getattr(self, name)[part] = values
        self._hi += len(t)

    def _make_room(self, count: int) -> None:
        size = len(self)
        row = 16 + 8 * (self._points.shape[1] + self._marks.shape[1])
        need = size + count
        room = need + max(need // 2, min(2 * need + 4096, _SPARE_BYTES // row))
        # Fresh memory costs more than moving to the front of what there is, unless much is unused.
        fits = need + size // 3 <= len(self._times) <= 2 * room
        for name in _COLUMNS:
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
        self,
        before: np.ndarray,
        t: np.ndarray,
        seq: np.ndarray,
        points: np.ndarray,
        marks: np.ndarray,
    ) -> np.ndarray:
        """Put objects before those of some arrival numbers, which move up; where they came to lie.

        Examples
        --------
        >>> objects, none = Objects(1, 0), np.empty((2, 0), np.int64)
        >>> objects.append(np.array([3, 9]), np.array([0, 1]), np.array([[0.0], [1.0]]), none)
        >>> one = np.array([1])
        >>> objects.insert(one, np.array([5]), one, np.array([[0.5]]), none[:1]).tolist()
        [1]
        >>> objects.times.tolist(), objects.seq.tolist()
        ([3, 5, 9], [0, 1, 2])
        """
        held = self.seq
        places = np.searchsorted(held, before, "left")
        times = np.insert(self.times, places, t)
        numbers = np.insert(held + np.searchsorted(before, held, "right"), places, seq)
        everything = np.insert(self.points, places, points, axis=0)
        marked = np.insert(self.marks, places, marks, axis=0)
        self._lo = self._hi = 0
        self.append(times, numbers, everything, marked)
        return places
