"""Submit jobs to the queue in arrays that the cluster takes; what it has no room for waits here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import ceil

from dgbench.errors import ConfigError

#: what sbatch says of limits on how many jobs may be in the queue: of a user, an account, a quality
#: of service; the other limits of accounting, on wall time or cores say, no waiting helps against
_FULL = re.compile(r"\b(?:Assoc|QOS)?(?:Max|Grp)SubmitJobs?(?:Per\w+|Limit)+\b")
_FULL_FOR_ALL = "Resource temporarily unavailable"  # sbatch has tried for minutes
_ARRAY = "Invalid job array specification"
#: of these limits other people's jobs are part
_SHARED = re.compile("Grp|Account|MaxJobCount")

Pack = list[int]  #: numbers of the jobs of a sweep that one job of the queue runs
Submit = Callable[[Sequence[Pack], int], Sequence[str]]


class NoRoomError(Exception):
    """The queue takes no more jobs for now, because of the limit that is named."""


class ArrayTooLargeError(Exception):
    """The cluster takes no array of this size."""


def refusal(error: Exception) -> Exception:
    """Tell limits on how many jobs there may be from mistakes, by what sbatch said."""
    text = " ".join(str(error).split())
    full = _FULL.search(text)
    if full:
        return NoRoomError(full[0])
    if _FULL_FOR_ALL in text:
        return NoRoomError("MaxJobCount")
    if _ARRAY in text:
        return ArrayTooLargeError(text)
    return ConfigError(f"Slurm refuses the jobs: {text}; see hydra.launcher")


class Arrays:
    """Packs of jobs on their way to the queue.

    Args:
        submit: submits packs as one array, of which as many as its second argument run at a time;
            returns their ids. Raises what :func:`refusal` makes of an error.
        parallelism: most packs of all arrays that are to run at a time.
        largest: most packs of an array.
    """

    def __init__(self, submit: Submit, parallelism: int, largest: int) -> None:
        self.submit = submit
        self.parallelism = parallelism
        self.largest = largest
        self.waiting: list[Pack] = []
        self.limit = ""  #: that keeps the rest from the queue; empty if the cluster took all

    @property
    def is_shared(self) -> bool:
        """Whether the limit counts jobs of other people, too."""
        return bool(_SHARED.search(self.limit))

    def send(self, most: int | None = None) -> list[list[tuple[str, Pack]]]:
        """Submit what waits, in arrays of equal size.

        Args:
            most: packs that the queue is expected to take at once; None if that is not known.

        Returns:
            The arrays that were submitted, as ids of their jobs with the packs.

        Raises:
            ConfigError: Slurm refuses the jobs, however few.
        """
        self.limit = ""
        sent: list[list[tuple[str, Pack]]] = []
        size = min(self._even_size(), most or self.largest)
        share = self._share()
        while self.waiting:
            packs = self.waiting[:size]
            try:
                ids = self.submit(packs, share)
            except NoRoomError as error:
                if len(packs) == 1:
                    self.limit = str(error)
                    break
                size = len(packs) // 2
            except ArrayTooLargeError as error:
                if len(packs) == 1:
                    raise ConfigError(
                        f"Slurm refuses the jobs: {error}; see hydra.launcher"
                    ) from error
                self.largest = size = len(packs) // 2
                share = self._share()
            else:
                del self.waiting[: len(packs)]
                sent.append(list(zip(ids, packs, strict=True)))
        return sent

    def _even_size(self) -> int:
        """Return how many packs each array has if all of them are of about the same size."""
        n = len(self.waiting)
        if not n:
            return 0
        n_arrays = ceil(n / self.largest)
        return ceil(n / n_arrays)

    def _share(self) -> int:
        """Return how many packs of one array run at a time, where all that waits is submitted."""
        n_arrays = max(1, ceil(len(self.waiting) / self.largest))
        return max(1, self.parallelism // n_arrays)
