"""What a method of test-time adaptation is.

A method is a class with one function, ``start``, which is given a network and returns what maps
each batch of a stream of images to logits, in the order of the stream. Labels never reach it. One
of a user's own is a subclass in a file of their own, named by ``adaptation._target_``; its fields
are its keys::

    class Sharper(Adaptation):
        factor: float

        def start(self, network):
            return lambda x: self.factor * network(x)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor, nn

from dgbench.trained.matched import Matched
from dgbench.validation import Checked

#: (n, C, H, W) images of a stream, batch after batch -> (n, K) logits
Adapter = Callable[[Tensor], Tensor]


class Adaptation(Checked, ABC):
    """Base of all methods."""

    key: ClassVar[str] = "adaptation"

    @abstractmethod
    def start(self, network: Matched) -> Adapter:
        """Prepare a network for a stream that begins.

        Args:
            network: (n, C, H, W) images as the dataset gives them -> (n, K) logits for its classes,
                in evaluation mode. It is a copy that belongs to this stream, and may be changed.

        Returns:
            A function that is called with each batch of the stream in turn, while no gradients are
            recorded.
        """

    def check(self, network: Matched, image: Sequence[int]) -> None:
        """Refuse a network that the method cannot adapt, before anything is evaluated.

        Args:
            network: as in :meth:`start`; it stays as it is.
            image: C, H, W of the dataset's images.

        Raises:
            ConfigError: it cannot adapt this network.
        """

    def understood(self, network: nn.Module) -> str:
        """Describe in some words which part of a network adapts; "" if it needs no saying."""
        return ""

    def least_images(self, network: Matched) -> int:
        """Return how many images a batch must have at least."""
        return 1
