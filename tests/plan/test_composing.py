"""Configurations that are composed once for a choice of groups equal Hydra's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from dgbench.configuration import CONF
from dgbench.plan.compose import Composed, Composer
from dgbench.plan.overrides import grammar, open_keys, quoted
from tests.studies import composer as make_composer
from tests.studies import plain


@pytest.fixture
def counted() -> Iterator[tuple[Composer, list[int]]]:
    """A composer over the real configuration tree, and how often it asked Hydra."""
    asked = [0]

    def load(words: list[str]) -> DictConfig:
        asked[0] += 1
        return compose("train", words, return_hydra_config=True)

    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield Composer(GlobalHydra.instance().config_loader(), load), asked


CHOICES: dict[str, list[Any]] = {
    "algorithm": ["erm", "vrex"],
    "backbone": ["mlp", "mnist_cnn"],
    "seed": [0, 1, "x", -3],
    "dataset.ratio": [3, 4, "null"],
    "dataset.given": ["[0.9,0.1]", "null", "[a,b]"],
    "backbone.width": [8, 16],  # the name of the backbone refers to it
    "paths.data_dir": ["here", "'there, too'"],  # the dataset refers to it
    "paths.output_dir": ["outputs", "other"],
    "dataset.data_dir": ["x", "${paths.output_dir}"],
    "hparams.draw": [0, 1, 17],
    "hparams.trial": [0, 2],
    "++hparams.lr": ["0.001", "1e-3", "${seed}"],
    "hparams.shared.hparams.lr": ["0.1", "{default: {small: 0.5}}"],
    "++hparams.vrex_lambda": ["1e-3", "null", "true"],
    "trainer.steps": [100, "1_000"],
    "trainer.eval_subsets": ["[val,test]", "[train,val,test]"],
    "protocol.folds": ["[0]", "full", "null"],
    "execution": ["single", "auto"],
    "retry": ["all", "failed"],
    "experiment": ["demo", "sr_cmnist_14"],
    "++grid.seed": ["[0,1]", "[2]"],
    "~averaging": [""],
    "sharpness": ["none", "sam"],
    "selection": ["last", "train_val"],
}


def slow(words: list[str]) -> tuple[dict[str, Any], str, str]:
    """Every resolved value, the folder of the studies and what is planned,
    as Hydra composes them.
    """
    config = compose("train", words, return_hydra_config=True)
    folder = str(config.hydra.sweep.dir)
    return plain(config), folder, Composed.of_config(config, folder).key


def fast(found: Composed) -> tuple[dict[str, Any], str, str]:
    return found.plain(), found.parent, found.key


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(12))
def test_random_sweeps_are_composed_as_hydra_does(
    number: int, counted: tuple[Composer, list[int]]
) -> None:
    """Up to 6 keys in random order with random values, 3 jobs each; one composer sees them all."""
    composer, _ = counted
    chance = random.Random(number)
    keys = chance.sample([key for key in CHOICES if not key.startswith("~")], chance.randint(1, 6))
    for _ in range(3):
        words = [f"{key}={chance.choice(CHOICES[key])}" for key in keys]
        found = composer.compose(words)
        assert fast(found) == slow(words), words


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["hydra.sweep.dir='m${seed}'", "seed=1"],
        ["seed=1", "seed=2"],
        ["++hparams.vrex_lambda=3", "algorithm=vrex"],
        ['dataset.name="it\'s"', "seed=4"],
        ["dataset.name='a, b'"],
        ["+dataset.extra=1"],
        ["dataset.ratio=4.0"],
        ["dataset.ratio=.inf"],
        [],
    ],
    ids=" ".join,
)
def test_rare_words(words: list[str], counted: tuple[Composer, list[int]]) -> None:
    composer, _ = counted
    for _ in range(2):
        found = composer.compose(words)
        assert fast(found) == slow(words)


def test_hydra_is_asked_once_per_choice(counted: tuple[Composer, list[int]]) -> None:
    """2 algorithms x 30 seeds x 5 draws: 2 compositions; another width of the network, which its
    name shows: 1 more.
    """
    composer, asked = counted
    studies = [
        [f"algorithm={a}", f"seed={s}", f"hparams.draw={d}"]
        for a in ("erm", "vrex")
        for s in range(30)
        for d in range(5)
    ]
    assert len({composer.compose(words).key for words in studies}) == 300
    assert asked == [2]
    assert (
        len(
            {
                composer.compose([f"backbone.width={w}", f"seed={s}"]).key
                for w in (8, 9)
                for s in range(9)
            }
        )
        == 18
    )
    assert asked == [2 + 1]


def test_what_a_command_composed_already_is_taken() -> None:
    """Nothing is asked of Hydra for the words of the command itself, and the studies go where they
    would go.
    """
    words = ["algorithm=vrex", "backbone.width=8", "paths.output_dir=other"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader, config = GlobalHydra.instance().config_loader(), compose("train", words)
        asked = Composer(loader, lambda words: compose("train", words)).compose(words)
    taken = Composer(
        loader, lambda words: pytest.fail(f"asked for {words}"), {tuple(words): config}
    ).compose(words)
    assert fast(taken) == fast(asked)


@pytest.mark.parametrize("word", ["trainer.stepz=1", "algorithm=ermm", "seed=[1", "seed=1,2"])
def test_what_hydra_refuses_is_refused(word: str, counted: tuple[Composer, list[int]]) -> None:
    with pytest.raises(HydraException):
        counted[0].compose([word])


def test_a_preset_that_looks_things_up_is_composed_once(
    counted: tuple[Composer, list[int]],
) -> None:
    """``ye2022_table1`` takes its learning rate from a table by the name of the dataset; seeds have
    no part in it.
    """
    composer, asked = counted
    for seed in range(5):
        words = ["experiment=ye2022_table1", "dataset=office_home", f"seed={seed}"]
        assert fast(composer.compose(words)) == slow(words)
    assert asked == [1]


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("trainer.steps=${oc.env:N}", "trainer.steps=${oc.env:N}"),
        ("trainer.steps=${oc.decode:${oc.env:N,9}}", "trainer.steps='${oc.decode:${oc.env:N,9}}'"),
        ("trainer.steps=${a${b}", "trainer.steps=${a${b}"),
    ],
)
def test_a_reference_within_a_reference_is_quoted(typed: str, taken: str) -> None:
    assert open_keys([typed]) == [taken]


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("paths.output_dir=~/runs", "paths.output_dir=/h/me/runs"),
        ("runs=[~/a,~/b/*]", "runs=[/h/me/a,/h/me/b/*]"),
        ("dataset.root=~/a,~/b", "dataset.root=/h/me/a,/h/me/b"),
        ("~dataset.ratio", "~dataset.ratio"),
        ("dataset.root=a~/b", "dataset.root='a~/b'"),
        ("dataset.root=~me/b", "dataset.root='~me/b'"),
    ],
)
def test_a_tilde_is_the_home_folder(
    typed: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bash expands it after ``name=`` alone: ``hydra.sweep.dir=~/x`` made a folder named ``~``."""
    monkeypatch.setenv("HOME", "/h/me")
    assert open_keys([typed]) == [taken]


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ('head.class_names={"0": zero}', "++head.class_names={0: zero}"),
        (
            'head.class_names={\'a b\': {"c:": "d: e"}}',
            '++head.class_names={a\\ b: {c\\:: "d: e"}}',
        ),
        ("head.class_names.0=zero", "++head.class_names.0=zero"),
        ("callbacks={mine: {_target_: a.B}}", "++callbacks={mine: {_target_: a.B}}"),
        ("callbacks.mine={_target_: a.B}", "++callbacks.mine={_target_: a.B}"),
        ("callbacks.early_stoping.patience=3", "callbacks.early_stoping.patience=3"),
        ("callbacks=early_stopping", "callbacks=early_stopping"),
        ("+head.class_names={a: b}", "+head.class_names={a: b}"),
        ("dataset.normalize={mean: null}", "dataset.normalize={mean: null}"),
    ],
)
def test_mappings_whose_names_are_free_take_new_ones(typed: str, taken: str) -> None:
    assert open_keys([typed]) == [taken]
    assert open_keys([taken]) == [taken]  # what was taken is printed, and typed again


def test_numbers_and_texts_are_keys_of_one_mapping() -> None:
    words = ["++head.class_names={0: zero, nine: dog}", "head=zero_shot"]
    assert make_composer().compose(words)["head"]["class_names"] == {"0": "zero", "nine": "dog"}
    assert grammar({"0": "zero", "a b": {"c:": 1}}) == "{0:zero,a\\ b:{c\\::1}}"


def test_a_text_of_many_backslashes_is_quoted_in_linear_time() -> None:
    """A pattern that tried every backslash as a beginning would take minutes."""
    text = "\\" * 300_000
    assert quoted(text) == f"'{text}{text}'"
    assert quoted(text + "'") == f"'{text}{text}\\''"
