"""Labels at the ends of curves, and which curves are in color."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.text import Text

from dgbench.reports.render.drawing import COLORS, canvas, colored, end_labels, pushed_apart


def test_places_are_moved_apart_in_order_and_within_limits() -> None:
    """b and c are 1 apart but need 4: c moves up; d and e meet the ceiling 20, so d gives way to
    16.
    """
    moved = pushed_apart({"b": 5.0, "c": 6.0, "e": 20.0, "d": 19.0}, 4.0, 0.0, 20.0)
    assert moved == pytest.approx({"b": 5.0, "c": 9.0, "d": 16.0, "e": 20.0})
    assert pushed_apart({"a": -3.0}, 4.0, 0.0, 20.0) == {"a": 0.0}
    assert pushed_apart({}, 1.0, 0.0, 1.0) == {}


@pytest.mark.parametrize(
    "ends", [[30.0] * 6, [0.0, 0.1, 0.2, 59.8, 59.9, 60.0], [10, 10.5, 11, 40, 40, 41]]
)
def test_labels_do_not_overlap_and_stay_on_the_canvas(ends: list[float]) -> None:
    names = ["group_dro (lr=0.001)", "erm", "irm", "vrex", "_private", "a$b$c"]
    with canvas("labels", 6.0, 3.7) as drawn:
        axes = drawn.add_subplot(ylim=(0, 62))
        end_labels(axes, {name: (1.0, end) for name, end in zip(names, ends, strict=True)}, {})
        drawn.canvas.draw()
        boxes = [Text.get_window_extent(label) for label in axes.texts]
        width, height = drawn.canvas.get_width_height()
    assert len(boxes) == 6
    assert all(a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1 for a, b in combinations(boxes, 2))
    assert all(box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)


def test_few_curves_are_all_in_color_and_of_many_the_leading_ones() -> None:
    few = colored(["a", "b"], ["b"])
    assert few == {"a": COLORS[0], "b": COLORS[1]}
    many = colored(
        [f"m{i}" for i in range(14)], ["m3", "absent", "m3", "m0", "m1", "m2", "m4", "m5"]
    )
    assert many == dict(zip(["m3", "m0", "m1", "m2", "m4"], COLORS, strict=False))
