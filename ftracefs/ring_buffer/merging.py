"""Records of many pages in order of time, run after run: the first before the last are known.

What `merge` gives for all pages at once comes here in runs of some pages each, so that who reads
the beginning does not wait for the end, and what is worked on stays in the processor's caches.
"""

from __future__ import annotations

import numpy as np

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.ring_buffer.pages import I64, PAGE_WORDS, Pages, decode


class Merging:
    """Goes through `pages` in the order of `merge`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        starts = np.flatnonzero(np.diff(pages.cpu, prepend=-1))
        self._next: list[int] = starts.tolist()  # of each CPU the page to go on with
        self._stop: list[int] = [*self._next[1:], len(pages.cpu)][: len(starts)]
        self._read = pages.read.copy()
        self._place = _places(pages)
        self._done = 0
        self._window: I64 = np.zeros(0, dtype=np.int64)
        for number in range(len(starts)):
            while self._skip_finished(number):
                pass

    def run(self, nr_pages: int) -> Entries:
        """The next records, of about so many pages; none at the end. The same until `advance`."""
        limit = self._done + nr_pages
        numbers: list[int] = []
        more: list[int] = []
        for first, stop in zip(self._next, self._stop, strict=True):
            if first < stop:
                # Pages of a CPU are in order of their places.
                count = int(np.searchsorted(self._place[first:stop], limit))
                numbers += range(first, min(first + max(1, count), stop))
                if numbers[-1] + 1 < stop:
                    more.append(int(self._pages.cpu[first]))
        self._window = np.array(numbers, dtype=np.int64)
        entries = merge(self._some(self._window))
        certain = len(entries)
        for cpu in more:
            # Behind the last record of a page stands one that may be older than what others hold.
            last = np.flatnonzero(entries.cpu == cpu)
            certain = min(certain, int(last[-1]) + 1) if len(last) else certain
        return entries[:certain]

    def advance(self, run: Entries) -> None:
        """Go on behind what `run` has given."""
        page = self._window[run.at // PAGE_WORDS]
        for number, first in enumerate(self._next):
            if first < self._stop[number]:
                last = np.flatnonzero(run.cpu == self._pages.cpu[first])
                if len(last):
                    at = int(page[last[-1]])
                    self._done += at - first
                    self._next[number] = at
                    self._read[at] = run.end[last[-1]]
                self._skip_finished(number)

    def _skip_finished(self, number: int) -> bool:
        """Leave a page without a record behind what has been given of it, padding at most."""
        at = self._next[number]
        is_finished = at < self._stop[number] and not len(decode(self._some(np.array([at]))).at)
        if is_finished:
            self._next[number] = at + 1
            self._done += 1
        return is_finished

    def rest(self) -> Entries:
        """All records that are left."""
        numbers = [range(*part) for part in zip(self._next, self._stop, strict=True)]
        return merge(self._some(np.array([n for part in numbers for n in part], dtype=np.int64)))

    def _some(self, numbers: I64) -> Pages:
        pages = self._pages
        return Pages(
            pages.words[numbers], pages.commit[numbers], self._read[numbers], pages.cpu[numbers]
        )


def _places(pages: Pages) -> I64:
    """The place of each page among all of them in order of their stamps."""
    stamp = pages.words[:, :2].copy().view(np.uint64)[:, 0]
    for cpu in distinct(pages.cpu):
        of_cpu = np.flatnonzero(pages.cpu == cpu)
        stamp[of_cpu] = np.maximum.accumulate(stamp[of_cpu])
    place = np.empty(len(stamp), dtype=np.int64)
    place[np.argsort(stamp, kind="stable")] = np.arange(len(stamp))
    return place
