"""``docs/blue_digits.py``: its pictures, and the shifts that follow from their construction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dgbench.data.datasets.base_images import BaseImages
from dgbench.shift.exact import colored_table, exact_shift
from docs import blue_digits


def test_pictures_have_their_share_of_blue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """White squares: the channels of each add up to white, blue is what its environment says, and
    no digit is lost.
    """
    n = 2000
    squares = BaseImages(
        "mnist", torch.full((n, 1, 14, 14), 255, dtype=torch.uint8), torch.arange(n) % 10, peak=255
    )
    monkeypatch.setattr(blue_digits, "load_base_images", lambda *_: squares)
    blue_digits.write_pictures(tmp_path, tmp_path, sigma=0.1)
    assert len(list(tmp_path.glob("*/*/*.png"))) == n
    for e in blue_digits.SIDES:
        folder = tmp_path / blue_digits.environment(e, 0.5)
        pixels = {
            label: np.stack(
                [np.asarray(Image.open(file))[7, 7] for file in sorted((folder / label).iterdir())]
            )
            for label in ("0", "1")
        }
        every = np.concatenate(list(pixels.values())).astype(int)
        assert np.abs(every.sum(1) - 255).max() <= 1
        assert (
            every[:, 2].mean() / 255 == pytest.approx(0.5, abs=0.03)
            and every[:, 2].std() / 255 > 0.07
        )
        wrong = np.concatenate(
            [pixels["0"][:, 1] > pixels["0"][:, 0], pixels["1"][:, 0] > pixels["1"][:, 1]]
        )
        assert wrong.mean() == pytest.approx(e, abs=0.1)


def test_computed_shifts() -> None:
    exact = exact_shift(
        colored_table(0.1, blue_digits.NOISE), colored_table(0.9, blue_digits.NOISE)
    )["cor"]
    assert blue_digits.computed_by_color().loc[0.1, 0.9] == pytest.approx(exact)
    div, cor = (blue_digits.computed_by_blue(what) for what in ("div", "cor"))
    assert np.diag(cor) == pytest.approx([exact] * len(cor)), (
        "blue alike on both sides changes nothing"
    )
    assert np.diag(div) == pytest.approx([0.0] * len(div)) and div.loc[0.0, 1.0] == pytest.approx(
        1, abs=1e-4
    )
    assert (np.diff(div.loc[0.0]) >= 0).all() and (np.diff(cor.loc[0.0]) < 0).all(), (
        "one grows as the other falls"
    )


def test_a_pair_stands_where_its_sides_are() -> None:
    pairs = [("e0.1_blue0.0", "e0.9_blue1.0", 0.9), ("e0.1_blue0.0", "e0.1_blue1.0", 0.3)]
    lines = pd.DataFrame([{"p": [p], "q": [q], "div": value} for p, q, value in pairs])
    assert blue_digits.of_blue(lines, "div").to_dict() == {1.0: {0.0: 0.9}}, (
        "of sides with the two e only"
    )
    colored = pd.DataFrame([{"p": ["0.10"], "q": ["0.30"], "cor": value} for value in (0.1, 0.3)])
    grid = blue_digits.of_color(colored)
    assert grid.loc[0.1, 0.3] == grid.loc[0.3, 0.1] == pytest.approx(0.2)
