"""Which images count: numbers of every class, nothing twice, nothing from the wrong side."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dgbench.errors import DataError
from dgbench.shift.pairs import balanced, cross_fit, half, held_out_split, null_pair

Y_P = np.array([0] * 5 + [1] * 2 + [2] * 7 + [5] * 9)
Y_Q = np.array([2] * 4 + [0] * 6 + [1] * 8 + [7] * 9)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_balanced_keeps_the_smaller_number_of_every_class() -> None:
    found = balanced(Y_P, Y_Q, 4, rng())
    assert found.classes.tolist() == [0, 2]
    assert found.dropped == {1: (2, 8), 5: (9, 0), 7: (0, 9)}
    assert Y_P[found.p].tolist() == Y_Q[found.q].tolist() == [0] * 5 + [2] * 4
    assert len(set(found.p)) == len(set(found.q)) == 9


def test_balanced_caps_classes_but_the_floor_is_of_the_images_there() -> None:
    found = balanced(Y_P, Y_Q, 3, rng(), max_per_class=2)
    assert Y_P[found.p].tolist() == Y_Q[found.q].tolist() == [0, 0, 2, 2]


def test_balanced_draws_every_image_equally_often() -> None:
    drawn = Counter(int(i) for seed in range(600) for i in balanced(Y_P, Y_Q, 1, rng(seed)).p)
    assert {drawn[i] for i in range(5)} == {600}
    assert all(abs(drawn[i] - 600 * 4 / 7) < 60 for i in range(7, 14))  # 5 standard deviations


@pytest.mark.parametrize("floor", [0, 1])
def test_a_class_of_one_side_only_is_dropped_without_a_floor(floor: int) -> None:
    assert balanced(Y_P, Y_Q, floor, rng()).classes.tolist() == [0, 1, 2]


def test_no_class_left_names_what_there_is_and_the_fix() -> None:
    with pytest.raises(DataError) as caught:
        balanced(Y_P, Y_Q, 20, rng())
    assert str(caught.value) == (
        "no class has 20 images in p and in q (class 0: 5 and 6, class 2: 7 and 4, class 1: 2 and "
        "8, class 5: 9 and 0, class 7: 0 and 9); lower min_per_class or choose environments with "
        "common classes"
    )
    with pytest.raises(DataError, match="class 4: 1 and 1 and 4 others"):
        balanced(np.arange(9), np.arange(9), 2, rng())
    with pytest.raises(DataError, match="images"):
        balanced(np.array([], dtype=int), np.array([], dtype=int), 2, rng())


def test_a_null_pair_mixes_halves_of_both_sides() -> None:
    y_p, y_q = np.array([0, 0, 0, 0, 0, 1, 1]), np.array([1, 1, 0, 0, 0, 0, 0])
    p, q = null_pair(y_p, y_q, rng())
    assert sorted([*p, *q]) == list(range(14))

    def counts(pair: np.ndarray) -> Counter[tuple[int, int]]:
        return Counter((int(i) // 7, int((*y_p, *y_q)[i])) for i in pair)

    # class 0 has 5 images: the first half of p, 2, and the second half of q, 3
    assert counts(p) == {(0, 0): 2, (1, 0): 3, (0, 1): 1, (1, 1): 1}
    assert counts(q) == {(0, 0): 3, (1, 0): 2, (0, 1): 1, (1, 1): 1}


def test_a_null_pair_is_drawn_at_random() -> None:
    y = np.repeat([0, 1], 10)
    drawn = Counter(position for seed in range(400) for position in null_pair(y, y, rng(seed))[0])
    assert all(abs(drawn[position] - 200) < 50 for position in range(40))


@pytest.mark.parametrize(
    ("n", "fraction", "held_out"), [(9, 0.2, 1), (10, 0.2, 2), (4, 0.2, 0), (100, 0.29, 29)]
)
def test_held_out_is_the_floor_of_every_class(n: int, fraction: float, held_out: int) -> None:
    y = np.arange(2 * n) % 2
    train, held = held_out_split(y, fraction, rng())
    assert Counter(y[held].tolist()) == ({0: held_out, 1: held_out} if held_out else {})
    assert sorted([*train, *held]) == list(range(2 * n))
    if held_out > 1:
        assert set(held) != set(held_out_split(y, fraction, rng(1))[1])


def test_half_is_the_floor_of_every_class() -> None:
    y = np.array([0, 1, 1, 2, 2, 2, 2, 2])
    assert y[half(y, rng())].tolist() == [1, 2, 2]
    drawn = Counter(int(i) for seed in range(500) for i in half(y, rng(seed)))
    assert abs(drawn[1] - 250) < 60
    assert all(abs(drawn[i] - 200) < 60 for i in range(3, 8))


def test_folds_differ_by_one_at_most_in_all_and_in_every_group() -> None:
    groups = np.repeat(np.arange(6), [1, 3, 5, 7, 9, 4])
    first, second = cross_fit(groups, rng())
    assert sorted([*first, *second]) == list(range(29))
    assert abs(len(first) - len(second)) == 1
    assert (
        np.abs(
            np.bincount(groups[first], minlength=6) - np.bincount(groups[second], minlength=6)
        ).max()
        == 1
    )
    assert set(first) != set(cross_fit(groups, rng(1))[0])
