"""AdaClust, adaptive clustering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.clustering import kmeans, means_of
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Outcome, Prediction, Step, Surveyed

NEGLIGIBLE = 1e-12  # an eigenvalue that is at most this part of the largest counts as none


class AdaClust(Algorithm):
    """Show the classifier the mean feature of the image's cluster too
    (Thomas et al., 2021; the authors' code).

    The objective is L = CE(h([z, c]), Y), where c is the centroid of the image's cluster, constant
    between two passes over all training images.

    A pass projects features on principal axes, each divided by the root of its eigenvalue; the
    first ``offset`` axes are left out, since they are thought to carry the class. It divides each
    projection by its length and finds ``num_clusters`` K clusters by k-means. Centroids are means
    of the features before the projection. An ``offset`` that leaves no axis, such as the 512 that
    the authors draw for ResNet-50 with a ResNet-18, counts as half of all axes.

    Passes come at step 0 and at steps E, 2 E, 4 E, ... or, with ``clust_epoch`` k, every k E steps.
    E = training images / batch size counts minibatches of one environment, as with the authors:
    such an epoch sees n times the data.

    ``variant=reference`` keeps two slips: training features are centered twice before the
    projection, and training centroids are means of centered features, those of other images of
    uncentered ones. ``test_centroids=together`` is also the reference: centroids in a prediction
    are means of the images that are scored together, as with MTL. A clustering costs about images x
    clusters x features per iteration, 10 restarts.
    """

    static = frozenset({"num_clusters", "pca_dim", "offset", "clust_epoch", "batch_size"})
    choices: ClassVar[Choices] = {
        "variant": ("fixed", "reference"),
        "test_centroids": ("training", "together"),
    }

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {"classifier": LinearSpec(2 * sizes.n_features, sizes.n_classes)}

    @classmethod
    def caution(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> str:
        offset = hparams["offset"]
        m = sizes.n_features
        if offset < m:
            return ""
        return f"hparams.offset={offset} leaves none of {m} axes; {m // 2} are left out instead"

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        return int(hparams["batch_size"]) if hparams["test_centroids"] == "together" else 0

    @property
    def n_clusters(self) -> int:
        """Clusters of all classes."""
        return int(self.values["num_clusters"] * self.sizes.n_classes)

    @property
    def kept_axes(self) -> slice:
        """Numbers of the principal axes in which images are clustered."""
        m = self.sizes.n_features
        first = self.values["offset"]
        if first >= m:
            first = m // 2
        return slice(first, first + self.values["pca_dim"])

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        m = self.sizes.n_features
        k = self.n_clusters
        r = len(range(m)[self.kept_axes])
        return {
            "cluster": torch.zeros(self.sizes.n_images, dtype=torch.int64),
            "centroid": torch.zeros(k, m),
            "mean": torch.zeros(m),
            "basis": torch.zeros(r, m),
            "center": torch.zeros(k, r),
        }

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        centroid = s.state["centroid"][s.state["cluster"][s.index]]
        return Outcome(s.risk(s.networks.classifier(torch.cat([z, centroid.to(z.dtype)], 1))))

    def predict(self, s: Prediction) -> Tensor:
        z = s.networks.featurizer(s.x)
        cluster = self.clusters(s, z)
        if self.values["test_centroids"] == "together":
            same_cluster = (cluster[:, None] == cluster).to(z.dtype)
            centroid = same_cluster @ z / same_cluster.sum(1, keepdim=True)
        else:
            centroid = s.state["centroid"][cluster].to(z.dtype)
        return s.networks.classifier(torch.cat([z, centroid], 1))

    @staticmethod
    def clusters(s: Prediction, z: Tensor) -> Tensor:
        """Assign (n, m) features to the (n,) clusters with the nearest centers."""
        projected = _projected(z.to(s.state["mean"].dtype) - s.state["mean"], s.state["basis"])
        center = s.state["center"]
        return (center.square().sum(1) - 2 * projected @ center.T).argmin(1)

    def survey_due(self, step: int) -> bool:
        interval = self.values["clust_epoch"]
        epoch_length = max(1, self.sizes.n_trained_on // self.values["batch_size"])
        epoch, remainder = divmod(step, epoch_length)
        if remainder:
            return False
        if interval:
            return bool(epoch % interval == 0)
        return epoch.bit_count() <= 1 and bool(epoch <= self.sizes.n_steps // epoch_length)

    def survey(self, s: Prediction) -> Tensor:
        """Compute the (n, m) features of (n, C, H, W) images."""
        return s.networks.featurizer(s.x)

    def digest(self, survey: Surveyed) -> dict[str, Tensor]:
        features = survey.rows.double()
        mean = features.mean(0)
        centered = features - mean
        basis = self._basis(centered)
        to_project = centered
        to_average = features
        if self.values["variant"] == "reference":
            to_project = centered - mean
            to_average = centered
        k = self.n_clusters
        clusters = kmeans(_projected(to_project, basis), k, survey.rng)
        centroid, counts = means_of(to_average, clusters.labels, k)
        centroid = torch.where(counts[:, None] > 0, centroid, centroid.mean(0))
        no_cluster = torch.zeros_like(survey.state["cluster"])
        new = {
            "cluster": no_cluster.index_copy(0, survey.index, clusters.labels),
            "centroid": centroid,
            "mean": mean,
            "basis": basis,
            "center": clusters.centers,
        }
        return {name: value.to(survey.state[name].dtype) for name, value in new.items()}

    def _basis(self, centered: Tensor) -> Tensor:
        """Compute the (r, m) principal axes, each divided by the root of its eigenvalue.

        An axis whose eigenvalue is negligible is 0.
        """
        ascending, columns = torch.linalg.eigh(centered.mT @ centered)
        eigenvalues = ascending.flip(0)
        axes = columns.mT.flip(0)
        counts = eigenvalues > NEGLIGIBLE * eigenvalues[0]
        scale = torch.where(counts, eigenvalues, torch.inf).rsqrt()
        basis: Tensor = axes[self.kept_axes] * scale[self.kept_axes, None]
        return basis


def _projected(centered: Tensor, basis: Tensor) -> Tensor:
    """Project centered (n, m) features on the basis: (n, r) coordinates of length 1."""
    return F.normalize(centered @ basis.T, dim=1)
