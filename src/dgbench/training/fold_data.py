"""The folds of a study and their data: which images each trains on, and which errors are recorded for it."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments
from dgbench.data.partial import partial
from dgbench.plan.folds import Fold


def environments_of(fold: Fold, environments: Environments) -> Environments:
    """The environments as this fold sees them."""
    if fold.membership is None:
        return environments
    return partial(environments, fold.membership.training, fold.membership.tested)


def recipes_of(fold: Fold, environments: Environments, subsets: Sequence[str], grouped: bool) -> list[ErrorRecipe]:
    """Errors to record for this fold, in the environments that concern it.

    An environment that is tested though it was trained on (``protocol=target_oracle``) is tested on its ``val`` images
    where the dataset keeps none for ``test``.

    Args:
        fold: what it trains on and is tested in.
        environments: as the fold sees them.
        subsets: which of ``train``, ``val`` and ``test``.
        grouped: predictions depend on the images that are scored together.
    """
    found = environments.table.error_recipes(fold.everywhere, subsets, fold.training, grouped)
    if fold.everywhere:
        return found
    found = [recipe for recipe in found if recipe.env in fold.scored]
    tested = {recipe.env for recipe in found if recipe.subset == "test"}
    lacking = set(fold.tested) & set(fold.training) - tested
    return found + [ErrorRecipe(s.env, "test", s.mixture) for s in found if s.subset == "val" and s.env in lacking]
