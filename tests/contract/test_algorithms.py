"""What every algorithm in conf/algorithm must keep, whatever it computes; a new YAML file is tested
without an edit.
"""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hydra.utils
import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dgbench.batches import EnvBatch, Tensors, TrainingImages
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import assembled
from dgbench.objectives.contract import Algorithm, Update
from dgbench.objectives.step import Hyperparameters, Outcome, Prediction, Step, Surveyed, draw
from dgbench.plan.hyperparameters import DeclaredHparam, checked, entry_of, resolve
from dgbench.training.modules import SingleRun
from dgbench.training.modules.predicting import as_tensors
from dgbench.training.optimizers import optimizer_settings

FOLDER = Path(__file__).parents[2] / "conf" / "algorithm"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SHARED = {"lr": 1e-2, "weight_decay": 0.0, "batch_size": 6}
SPACES = {"domainbed", "ood_bench", "yu2024"}
BOUNDED = {
    "uniform", "log10_uniform", "log_uniform", "int_uniform", "int_log10_uniform",
    "int_log2_uniform", "randint",
}  # fmt: skip
K, SHAPE, IMAGES = 3, (1, 3, 3), 36
STEPS = (0, 1, 10_000)  # both sides of every annealing and of a discriminator's turns
#: hyperparameters under which an algorithm learns within some tens of steps, where its defaults do
#: not
LEARNS_AT: Mapping[str, Mapping[str, Any]] = {
    "adrmx": {"d_steps_per_g_step": 1}, "erm_pp": {"linear_steps": 10}, "sand_mask": {"tau": 0.5},
}  # fmt: skip
#: algorithms whose loss of one step depends on the order of the environments, and what belongs to
#: rows or positions; the distribution of the loss over seeds does not
ORDERED = {
    "adrmx": "outputs", "caus_irl_coral": "cuts", "caus_irl_mmd": "cuts",
    "cdann": "outputs of the discriminator", "dann": "outputs of the discriminator",
    "ddg": "random numbers and halves", "dna": "masks", "erdg": "heads",
    "fact": "partners and weights", "fish": "turns", "ji_gen": "orders", "mixstyle": "partners",
    "mixup": "partners", "mldg": "episodes", "mmld": "masks", "mtl": "noise",
    "sag_net": "permutations", "self_reg": "keys", "stable_net": "memory", "trm": "experts",
    "urm": "noise",
}  # fmt: skip

pytestmark = [pytest.mark.usefixtures("double"), pytest.mark.parametrize("name", NAMES)]


@cache  # parsing YAML would be most of what building a small algorithm takes
def _config(name: str) -> Mapping[str, Any]:
    config = OmegaConf.to_container(OmegaConf.load(FOLDER / f"{name}.yaml"))
    assert isinstance(config, dict)
    return MappingProxyType({str(key): value for key, value in config.items()})


@cache
def _shared() -> Mapping[str, Any]:
    config = OmegaConf.to_container(
        OmegaConf.load(FOLDER.parent / "hparams" / "default.yaml"), resolve=True
    )
    assert isinstance(config, dict)
    return MappingProxyType(config["shared"])


def _small(value: Any) -> Any:
    return value["small"] if isinstance(value, Mapping) and "small" in value else value


def _hparams(name: str) -> dict[str, Any]:
    """The defaults for small images."""
    own = {key: _small(entry_of(each).default) for key, each in _config(name)["hparams"].items()}
    return {**SHARED, **own, "batch_size": SHARED["batch_size"]}


def _fast(name: str) -> dict[str, Any]:
    """Learning rates for some tens of steps, and what must differ from the defaults so that it
    learns at all.
    """
    return {
        **{key: SHARED["lr"] for key in _hparams(name) if key.startswith("lr")},
        **LEARNS_AT.get(name, {}),
    }


def _kind(name: str) -> type[Algorithm]:
    return hydra.utils.get_class(_config(name)["objective"])


class _Body(nn.Sequential):
    """Images -> 6 features; maps are the image, a function of it, and the features."""

    def __init__(self, channels: int, norm: bool) -> None:
        pixels = channels * SHAPE[1] * SHAPE[2]
        super().__init__(
            nn.Flatten(), nn.Linear(pixels, 6), *([nn.BatchNorm1d(6)] if norm else []), nn.Tanh()
        )

    def forward(self, x: Tensor, maps: bool = False) -> Any:
        z = super().forward(x)
        return (z, [x, x.tanh(), z]) if maps else z


def _algorithm(
    name: str, n_envs: int = 3, seed: int = 0, norm: bool = True, **changed: Any
) -> SingleRun:
    kind, hparams = _kind(name), {**_hparams(name), **changed}
    sizes = Sizes(
        n_features=6, n_classes=K, n_envs=n_envs, image=SHAPE, n_steps=80, n_images=IMAGES
    )
    channels = SHAPE[0] + kind.extra_channels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body, image = _Body(channels, norm), (channels, *SHAPE[1:])
        needed = kind.networks_needed(sizes, hparams)
        run = SingleRun(
            kind(sizes, hparams),
            assembled({"featurizer": body}, needed, image, lambda: _Body(channels, norm)),
            seed,
        )
    run.training_images = lambda _: [_images(n_envs)]
    return run


def _images(n_envs: int) -> TrainingImages:
    """All training images, of which a minibatch repeats some numbers."""
    batch = _batch((IMAGES // n_envs,) * n_envs, seed=4321)
    assert batch.index is not None
    return TrainingImages(batch.x, batch.y, batch.env, torch.arange(len(batch.y)))


def _batch(sizes: tuple[int, ...], seed: int = 0) -> EnvBatch:
    """Images whose first row of pixels says the class, in environments of different brightness."""
    rng = np.random.default_rng(seed)
    y = torch.as_tensor(rng.integers(K, size=sum(sizes)))
    x, index = (
        torch.as_tensor(rng.normal(size=(sum(sizes), *SHAPE))),
        torch.arange(sum(sizes)) % IMAGES,
    )
    batch = EnvBatch(x, y, sizes, index)
    batch.x[:, 0, 0] += 3.0 * (torch.arange(K) == y[:, None]) + 0.2 * batch.env[:, None]
    return batch


def _noise(run: SingleRun, sizes: tuple[int, ...], seed: int = 0) -> dict[str, Tensor]:
    inputs = run.algorithm.random_inputs(sizes)
    drawn = draw(inputs, np.random.default_rng(seed), 2)
    assert {name: array.shape for name, array in drawn.items()} == {
        n: (2, *each.shape) for n, each in inputs.items()
    }
    return as_tensors({key: array[1] for key, array in drawn.items()}, torch.empty(()))


def _updates(run: SingleRun) -> Iterator[tuple[int, Update]]:
    for step in STEPS:
        for update in run.algorithm.updates(step):
            yield step, update


def _names(run: SingleRun, update: Update) -> list[str]:
    groups = run.algorithm.param_groups()
    networks = [name for group in update.groups for name in groups[group].networks]
    return list(run.networks.params(*networks)) if networks else []


def _step(run: SingleRun, step: int, batch: EnvBatch, noise: Tensors) -> Step:
    hp = Hyperparameters(run.hp.tensors())
    return Step(run.networks, batch, hp, run.memory.tensors(), noise, torch.tensor(step))


def _run(run: SingleRun, update: Update, step: int, batch: EnvBatch, noise: Tensors) -> Outcome:
    return update.objective(_step(run, step, batch, noise))


def _gradients(algorithm: SingleRun, update: Update, out: Outcome) -> dict[str, Tensor]:
    """As training takes them: of the groups' parameters; 0 where the loss does not reach."""
    params = algorithm.networks.params()
    names = _names(algorithm, update)
    if out.grads is not None or not names:
        given = out.grads or {}
        return {key: given[key] if key in given else torch.zeros_like(params[key]) for key in names}
    found = torch.autograd.grad(out.loss, [params[key] for key in names], allow_unused=True)
    return {
        key: torch.zeros_like(params[key]) if g is None else g
        for key, g in zip(names, found, strict=True)
    }


def _assert_works(algorithm: SingleRun, sizes: tuple[int, ...]) -> None:
    batch, noise = _batch(sizes), _noise(algorithm, sizes)
    for step, update in _updates(algorithm):
        out = _run(algorithm, update, step, batch, noise)
        assert out.loss.shape == ()
        assert out.loss.isfinite()
        assert all(g.isfinite().all() for g in _gradients(algorithm, update, out).values())
        assert {key: v.shape for key, v in out.state.items()}.items() <= {
            key: v.shape for key, v in algorithm.memory.tensors().items()
        }.items()


# ---- the YAML file


def test_yaml_names_a_documented_class(name: str) -> None:
    config = _config(name)
    assert set(config) - {"shared"} == {"_target_", "objective", "name", "hparams", "search"}
    assert set(config.get("shared", SHARED)) <= set(SHARED), (
        "which of the shared hyperparameters it reads"
    )
    assert config["_target_"] == "dgbench.training.modules.training_module"
    assert config["name"] == name
    assert issubclass(_kind(name), Algorithm)
    assert re.search(r"\(.+\d{4}.*\)", _kind(name).__doc__ or "", re.DOTALL), (
        "the docstring cites the paper"
    )


def defaults_of(entry: DeclaredHparam) -> list[Any]:
    """Every value that a default holds."""
    if not isinstance(entry.default, dict):
        return [entry.default]
    named = entry.default.get("datasets") or {}
    return [*(value for key, value in entry.default.items() if key != "datasets"), *named.values()]


def test_yaml_explains_every_default_and_holds_it_in_its_range(name: str) -> None:
    entries = {key: entry_of(each) for key, each in _config(name)["hparams"].items()}
    for key, entry in entries.items():
        assert len(entry.help) > 10 and entry.range, f"no sentence or no range for {key}"
        for default in defaults_of(entry):
            assert checked(key, default, entry) == default
    switches = {key: entry.range for key, entry in entries.items() if key in _kind(name).choices}
    for key, allowed in _kind(name).choices.items():
        assert switches[key] == " | ".join(
            str(value).lower() if isinstance(value, bool) else value for value in allowed
        )


class _Lowest(np.random.RandomState):
    """Draws the lower end of every distribution, and the first choice."""

    def uniform(self, low: float, high: float) -> float:  # type: ignore[override]
        return low

    def randint(self, low: int, high: int) -> int:  # type: ignore[override]
        return low

    def choice(self, n: int) -> int:  # type: ignore[override]
        return 0


class _Highest(_Lowest):
    """Draws the upper end, and the last choice."""

    def uniform(self, low: float, high: float) -> float:  # type: ignore[override]
        return float(np.nextafter(high, low))

    def randint(self, low: int, high: int) -> int:  # type: ignore[override]
        return high - 1

    def choice(self, n: int) -> int:  # type: ignore[override]
        return n - 1


@pytest.mark.parametrize("kind", ["small", "large"])
def test_every_draw_lies_in_its_range(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resolve`` refuses a value outside:
    given some draws, and both ends of every distribution.
    """
    words: dict[str, Any] = {"kind": kind, "read": [*SHARED, "resnet_dropout"]}
    for space in SPACES:
        for number in (1, 2, 3):
            resolve(_shared(), _config(name), space=space, number=number, **words)
    for end in (_Lowest(), _Highest()):
        monkeypatch.setattr(
            "dgbench.plan.hyperparameters.RNGS", {"per_name": lambda base, end=end: lambda key: end}
        )
        for space in SPACES:
            resolve(_shared(), _config(name), space=space, number=1, **words)


def test_yaml_search_spaces(name: str) -> None:
    config = _config(name)
    entries = {key: entry_of(each) for key, each in config["hparams"].items()}
    assert set(config["search"]) <= SPACES
    for space in config["search"].values():
        for key, entry in space.items():
            assert key in entries, f"{key} is searched but has no default"
            for distribution in (
                defaults_of(DeclaredHparam(entry)) if {"small", "large"} & set(entry) else (entry,)
            ):
                ((kind, values),) = distribution.items()
                assert kind == "choice" or (
                    kind in BOUNDED and len(values) == 2 and values[0] < values[1]
                )
                for value in values if kind == "choice" else ():
                    checked(key, value, entries[key])


class _Watched(Hyperparameters):
    """Hyperparameters that remember which of them were read."""

    def __init__(self, values: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(values)
        object.__setattr__(self, "read", read)

    def __getitem__(self, key: str) -> Any:
        object.__getattribute__(self, "read").add(key)
        return super().__getitem__(key)


def test_every_hyperparameter_is_used_and_stated(name: str) -> None:
    """Each is read, if not by default then under some value of a switch; and no other."""
    switches = [{key: value} for key, allowed in _kind(name).choices.items() for value in allowed]
    read = {key for changed in ({}, *switches) for key in _hyperparameters_read(name, changed)}
    assert read - set(SHARED) == set(_config(name)["hparams"]) - set(SHARED)


def _hyperparameters_read(name: str, changed: Mapping[str, Any]) -> set[str]:
    run = _algorithm(name, **changed)
    algorithm = run.algorithm
    read: set[str] = {*algorithm.resets(), *([algorithm.reset_lr] if algorithm.reset_lr else [])}
    algorithm.values = _Watched(algorithm.values, read)
    algorithm.networks_needed(algorithm.sizes, algorithm.values)
    algorithm.initial_state(run.networks)
    for group_name, group in algorithm.param_groups().items():
        read |= {group.pull} if group.pull else set()
        optimizer_settings(algorithm.values, group)
        for step in STEPS:
            algorithm.lr_factor(group_name, step)
    batch, noise = _batch((6, 6, 6)), _noise(run, (6, 6, 6))
    hp, state = _Watched(run.hp.tensors(), read), run.memory.tensors()
    for step, update in _updates(run):
        update.objective(Step(run.networks, batch, hp, state, noise, torch.tensor(step)))
    if algorithm.survey_due(0):
        images = _images(3)
        rows = algorithm.survey(Prediction(run.networks, images.x, hp, state, {}))
        rng = np.random.default_rng(0)
        algorithm.digest(Surveyed(rows.detach(), images.y, images.env, images.index, state, 0, rng))
    scoring = run.draws.for_prediction(6, torch.empty(()), "images")
    algorithm.predict(Prediction(run.networks, batch.x[:6], hp, state, scoring))
    assert algorithm.static - set(SHARED) <= set(_config(name)["hparams"])
    assert set(algorithm.choices) <= algorithm.static
    return read


def test_unknown_switch_is_refused(name: str) -> None:
    for key in _kind(name).choices:
        with pytest.raises(ConfigError, match=f"hparams.{key}=nonsense.*choose one of"):
            _algorithm(name, **{key: "nonsense"})


# ---- the objective


def _global_states() -> bytes:
    return pickle.dumps((torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()))


def test_objective_is_pure(name: str) -> None:
    """Same inputs, same outputs; inputs (but for running statistics) and global generators
    untouched.
    """
    algorithm = _algorithm(name)
    batch, noise = _batch((6, 6, 6)), _noise(algorithm, (6, 6, 6))
    inputs = {
        **{f"noise {key}": value for key, value in noise.items()}, **algorithm.networks.params(),
        **algorithm.hp.tensors(), **algorithm.memory.tensors(), "x": batch.x, "y": batch.y,
    }  # fmt: skip
    before, states = {key: value.clone() for key, value in inputs.items()}, _global_states()
    for step, update in _updates(algorithm):
        outs = [_run(algorithm, update, step, batch, noise) for _ in range(2)]
        gradients = [_gradients(algorithm, update, out) for out in outs]
        assert torch.equal(outs[0].loss, outs[1].loss)
        assert all(torch.equal(value, gradients[1][key]) for key, value in gradients[0].items())
        assert all(torch.equal(value, outs[1].state[key]) for key, value in outs[0].state.items())
        assert not any(
            value.requires_grad for value in (*outs[0].state.values(), *outs[0].logs.values())
        )
    assert all(torch.equal(before[key], value) for key, value in inputs.items())
    assert _global_states() == states


def test_predictions_that_depend_on_other_images_say_so(name: str) -> None:
    switches = [{key: value} for key, allowed in _kind(name).choices.items() for value in allowed]
    for changed in ({}, *switches):
        algorithm = _algorithm(name, **changed)
        algorithm.networks.eval()
        batch, noise = _batch((6, 6)), algorithm.draws.for_prediction(12, torch.empty(()), "images")
        beside = torch.cat([batch.x[:1], 5 * batch.x[1:].flip(0)])
        hp, state = Hyperparameters(algorithm.hp.tensors()), algorithm.memory.tensors()
        one, other = (
            algorithm.algorithm.predict(Prediction(algorithm.networks, x, hp, state, noise))[0]
            for x in (batch.x, beside)
        )
        assert torch.allclose(one, other) == (
            algorithm.algorithm.group_size(algorithm.algorithm.values) == 0
        )


def test_noise_depends_on_the_generator_alone(name: str) -> None:
    algorithm, states = _algorithm(name), _global_states()
    first, again, other = (_noise(algorithm, (6, 6, 6), seed) for seed in (1, 1, 2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert not first or not all(torch.equal(value, other[key]) for key, value in first.items())
    assert _global_states() == states


def test_order_of_environments(name: str) -> None:
    """Without noise by position, environments in another order give the same loss and gradient."""
    if name in ORDERED:
        return
    algorithm = _algorithm(name)
    batch, noise = _batch((6, 6, 6)), _noise(algorithm, (6, 6, 6))
    rows = torch.arange(18).view(3, 6)[[2, 0, 1]].flatten()
    turned = EnvBatch(batch.x[rows], batch.y[rows], batch.sizes, batch.index[rows])  # type: ignore[index]
    for step, update in _updates(algorithm):
        outs = [_run(algorithm, update, step, each, noise) for each in (batch, turned)]
        torch.testing.assert_close(outs[0].loss, outs[1].loss)
        torch.testing.assert_close(*(_gradients(algorithm, update, out) for out in outs))


def test_unequal_minibatches(name: str) -> None:
    _assert_works(_algorithm(name), (7, 4, 5))


@pytest.mark.parametrize("n_envs", [1, 2])
def test_few_environments(name: str, n_envs: int) -> None:
    """It works, or says at construction why not and what to do."""
    try:
        algorithm = _algorithm(name, n_envs=n_envs)
    except ConfigError as error:
        assert "training environment" in str(error)
        assert re.search("; (give|lower|set|choose)", str(error)), "the message ends with the fix"
        return
    _assert_works(algorithm, (6,) * n_envs)


def _functional(algorithm: SingleRun, update: Update, sizes: tuple[int, ...], step: int) -> Any:
    """Gradients and new state as a pure function of everything that differs between runs."""
    trained = set(_names(algorithm, update))

    index = torch.arange(sum(sizes)) % IMAGES

    def gradients(
        params: Tensors,
        buffers: Tensors,
        hp: Tensors,
        state: Tensors,
        noise: Tensors,
        x: Tensor,
        y: Tensor,
    ):  # type: ignore[no-untyped-def]
        def loss(own: Tensors):  # type: ignore[no-untyped-def]
            nets = algorithm.networks.bind(
                {**params, **own, **{key: value.clone() for key, value in buffers.items()}}
            )
            batch = EnvBatch(x, y, sizes, index)
            out = update.objective(
                Step(nets, batch, Hyperparameters(hp), state, noise, torch.tensor(step))
            )
            return out.loss, (dict(out.state), dict(out.grads or {}))

        if not trained:
            _, (new, _) = loss({})
            return {}, new
        found, (new, given) = torch.func.grad(loss, has_aux=True)(
            {k: v for k, v in params.items() if k in trained}
        )
        return {**found, **{key: value for key, value in given.items() if key in found}}, new

    return gradients


@pytest.mark.thorough
def test_stacked_equals_looped(name: str) -> None:
    """Three runs mapped by vmap have the gradients and state that each has alone, and that modules
    have.
    """
    runs = [_algorithm(name, seed=seed) for seed in range(3)]
    first, sizes = runs[0], (6, 6, 6)
    if not first.algorithm.stackable:
        assert first.algorithm.why_not_stackable
        return
    inputs = [
        (
            dict(a.networks.params()), dict(a.networks.statistics()),
            {key: value * (1 - 0.1 * i) for key, value in a.hp.tensors().items()},
            {k: value + 0.1 * i if value.is_floating_point() else value for k,
                value in a.memory.tensors().items()},
            _noise(a, sizes, seed=i), _batch(sizes, i).x, _batch(sizes, i).y,
        )
        for i, a in enumerate(runs)
    ]  # fmt: skip
    stacked = torch.utils._pytree.tree_map(lambda *leaves: torch.stack(leaves).detach(), *inputs)
    for step, update in _updates(first):
        function = _functional(first, update, sizes, step)
        alone = [function(*each) for each in inputs]
        together = torch.func.vmap(function)(*stacked)
        expected = torch.utils._pytree.tree_map(lambda *leaves: torch.stack(leaves), *alone)
        torch.testing.assert_close(together, expected, rtol=1e-9, atol=1e-9)
        hp, state, noise, x, y = inputs[0][2:]
        batch = EnvBatch(x, y, sizes, torch.arange(sum(sizes)) % IMAGES)
        out = update.objective(
            Step(first.networks, batch, Hyperparameters(hp), state, noise, torch.tensor(step))
        )
        torch.testing.assert_close(
            _gradients(first, update, out), alone[0][0], rtol=1e-9, atol=1e-9
        )


@pytest.mark.thorough
def test_what_cannot_be_raised_says_so(name: str) -> None:
    """Own gradients are ``why_not_sharp``; so is nothing that follows the slope of its loss."""
    kind = _kind(name)
    switches = [{key: value} for key, allowed in kind.choices.items() for value in allowed]
    kinds = {_follows(_algorithm(name, **changed)) for changed in ({}, *switches)}
    assert kind.why_not_sharp or "own" not in kinds
    assert not kind.why_not_sharp or kinds != {"slope"}


def _follows(run: SingleRun) -> str:
    """What updates of a featurizer follow: ``own`` gradients, the ``slope`` of their loss, or it
    with ``stops``.

    Where parts of a loss are constants to the differentiation, one loss and an adversary's cannot
    be told apart.
    """
    groups, bodies = (
        run.algorithm.param_groups(),
        run.algorithm.featurizers(run.algorithm.sizes, run.algorithm.values),
    )
    batch, noise = _batch((6, 6, 6)), _noise(run, (6, 6, 6))
    for step, update in _updates(run):
        if all(set(groups[group].networks).isdisjoint(bodies) for group in update.groups):
            continue
        out = _run(run, update, step, batch, noise)
        if out.grads is not None:
            return "own"
        if not _is_slope(run, update, step, batch, noise):
            return "stops"
    return "slope"


def _is_slope(run: SingleRun, update: Update, step: int, batch: EnvBatch, noise: Tensors) -> bool:
    slopes = _gradients(run, update, _run(run, update, step, batch, noise))
    rng, length, losses = torch.Generator().manual_seed(0), 1e-6, []
    way = {key: torch.randn(slope.shape, generator=rng) for key, slope in slopes.items()}
    values = dict(run.networks.params())
    for sign in (1, -1):
        moved = run.networks.bind(
            {key: values[key].detach() + sign * length * way[key] for key in way}
        )
        losses.append(
            update.objective(replace(_step(run, step, batch, noise), networks=moved)).loss.detach()
        )
    expected = torch.stack([(slope * way[key]).sum() for key, slope in slopes.items()]).sum()
    return bool(
        torch.isclose((losses[0] - losses[1]) / (2 * length), expected, rtol=1e-3, atol=1e-5)
    )


# ---- training


class _Loader(pl.LightningDataModule):
    """Ten steps per call, as the datamodule hands them over."""

    def train_dataloader(self) -> DataLoader[list[EnvBatch]]:
        return DataLoader(
            [[_batch((6, 6, 6), seed=10 * i + k) for k in range(10)] for i in range(8)],  # type: ignore[arg-type]
            batch_size=None,
        )

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        return batch


def _train(algorithm: SingleRun, folder: Path) -> pl.Trainer:
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(algorithm, _Loader())
    return trainer


def _error(algorithm: SingleRun) -> float:
    batch = _batch((60, 60, 60), seed=1234)
    with torch.no_grad():
        return float((algorithm.eval()(batch.x).argmax(1) != batch.y).double().mean())


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore::FutureWarning")
def test_learns_and_survives_a_checkpoint(name: str, tmp_path: Path) -> None:
    algorithm = _algorithm(name, norm=False, **_fast(name))
    before = _error(algorithm)
    trainer = _train(algorithm, tmp_path)
    after = _error(algorithm)
    assert algorithm.steps_done == 80
    assert after < 0.7 * before, f"error {before:.2f} before and {after:.2f} after 80 steps"

    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    again = _algorithm(name, norm=False, seed=5, **_fast(name))
    again.draws.seed = algorithm.draws.seed
    again.load_state_dict(checkpoint["state_dict"])
    x = _batch((6, 6, 6), seed=77).x
    with torch.no_grad():
        assert torch.equal(again.eval()(x), algorithm.eval()(x))


def _advance(run: SingleRun, first: int, n: int) -> None:
    optimizers = dict(zip(run.trained_groups(), run.configure_optimizers(), strict=True))
    run.load_optimizers()
    for step in range(first, first + n):
        run.train().train_steps([_batch((6, 6, 6), seed=step)], optimizers)


@pytest.mark.thorough
def test_resumes_bit_for_bit(name: str) -> None:
    """From the state that a checkpoint holds, weights, memory and optimizers go on as if nothing
    had happened.
    """
    straight, first = (_algorithm(name, **_fast(name)) for _ in range(2))
    again = _algorithm(name, seed=5, **_fast(name))
    again.draws.seed = straight.draws.seed
    _advance(straight, 0, 7)
    _advance(first, 0, 3)
    state = pickle.loads(pickle.dumps(first.run_state(0)))
    again.load_run_states([state])
    _advance(again, 3, 4)
    expected, found = straight.run_state(0), again.run_state(0)
    assert found["state_dict"].keys() == expected["state_dict"].keys()
    assert all(
        torch.equal(value, found["state_dict"][key])
        for key, value in expected["state_dict"].items()
    )
    leaves = torch.utils._pytree.tree_leaves
    pairs = zip(leaves(expected["optimizers"]), leaves(found["optimizers"]), strict=True)
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)
