"""Dataset shift of colored digits as in Ye et al. (2022), Figure 4 and Table 3: ``python
docs/blue_digits.py WORK``.

Environments differ in how often the color contradicts the label (e), or in a third color, blue,
that says nothing of the label: a share b of each digit is blue, from a Gaussian of mean mu and
deviation sigma cut to [0, 1], and 1 - b is red or green. Draws docs/figures/blue_digits.png and
prints its numbers and the paper's table beside ours, in some 40 minutes. MNIST is in
DGBENCH_DATA_DIR. Pictures and estimates are kept in WORK, and the same command continues.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from scipy.stats import truncnorm

from dgbench.data.datasets.base_images import load_base_images
from dgbench.data.datasets.painted import replaced
from dgbench.records.shift_rows import read_shift_rows
from dgbench.reports.published import published
from dgbench.reports.render.drawing import canvas
from dgbench.shift.exact import colored_table, exact_shift

ROOT = Path(__file__).resolve().parents[1]
ESTIMATORS = ("ood_bench", "joint")
E = (0.1, 0.3, 0.5, 0.7, 0.9)
SIDES = (0.1, 0.9)  #: e of the environments that differ in blue, too
MU = (0.0, 0.25, 0.5, 0.75, 1.0)
#: of the pictures whose diversity and correlation shift Figures 4b and 4c show
SIGMA = {
    "div": 0.1,
    "cor": 0.25,
}
NOISE = 0.25  # of labels
# an image belongs to one side alone where the posterior of the other is below it, as of `joint`
DELTA = 0.05
DIGITS = "shift_experiment=ye2022_table3"
SAME = "dataset.given=[0.1,0.1001]"  # two environments of Table 3 alike
PICTURES = (
    "dataset=image_folder",
    "dataset.image_size=14",
    "dataset.normalize.mean=[0,0,0]",
    "dataset.normalize.std=[1,1,1]",
    "backbone=mlp",
    "init=random",
    "pairs=each",
    "features=trained",
    "halves=0",
    "null=false",
    "estimator.ood_bench.recipe=paper",
    "estimator.ood_bench.class_weights=uniform",
)


def environment(e: float, mu: float) -> str:
    """Name an environment by its two numbers."""
    return f"e{e}_blue{mu}"


def write_pictures(folder: Path, data: Path, sigma: float) -> None:
    """Write MNIST as ENVIRONMENT/CLASS/NUMBER.png, 14 x 14 in three colors, each digit in one
    environment.
    """
    digits = load_base_images("mnist", data, 14)
    shape, rng = digits.images[:, 0].numpy() / digits.peak, np.random.default_rng(0)
    label = replaced((digits.classes < 5).long(), NOISE, 2, rng)
    environments = list(product(SIDES, MU))
    parts = np.array_split(rng.permutation(len(label)), len(environments))
    for part, (e, mu) in zip(parts, environments, strict=True):
        color = replaced(label[part], e, 2, rng).numpy()
        low, high = -mu / sigma, (1 - mu) / sigma
        blue = truncnorm.rvs(low, high, loc=mu, scale=sigma, size=len(part), random_state=rng)
        strength = np.stack([(1 - blue) * (color == 0), (1 - blue) * (color == 1), blue], axis=1)
        pictures = np.rint(255 * shape[part][..., None] * strength[:, None, None, :]).astype(
            np.uint8
        )
        for name in ("0", "1"):
            (folder / environment(e, mu) / name).mkdir(parents=True)
        for number, picture in zip(part, pictures, strict=True):
            Image.fromarray(picture).save(
                folder / environment(e, mu) / str(int(label[number])) / f"{number:05d}.png"
            )


def estimates(work: Path, *words: str) -> pd.DataFrame:
    """Run ``shift.py`` with these words; return a line per estimator, pair and trial, with its
    values.

    A value is missing where too few points are in T for a correlation shift.
    """
    chosen = f"estimator=[{','.join(ESTIMATORS)}]"
    folders = f"paths.output_dir={work}", f"paths.cache_dir={work / 'cache'}"
    subprocess.run([sys.executable, str(ROOT / "shift.py"), *words, chosen, *folders], check=True)
    rows = [row for file in work.glob("shift-*/shifts.jsonl") for row in read_shift_rows(file)[0]]
    return pd.DataFrame(
        [
            {
                "estimator": row.identity.estimator,
                "p": row.p,
                "q": row.q,
                "diagnostics": row.diagnostics,
                **row.values,
            }
            for row in rows
        ]
    )


def of_color(lines: pd.DataFrame) -> pd.DataFrame:
    """Make the grid of Figure 4a, correlation shift by e of both sides; it is the same in both
    directions.
    """
    sides = lines.assign(p=lines["p"].str[0].astype(float), q=lines["q"].str[0].astype(float))
    swapped = sides.rename(columns={"p": "q", "q": "p"})
    return pd.concat([sides, swapped]).pivot_table(
        index="p", columns="q", values="cor", aggfunc="mean"
    )


def of_blue(lines: pd.DataFrame, what: str) -> pd.DataFrame:
    """Make the grid of Figure 4b or 4c: a shift between e = 0.1 in the lines and 0.9 in the
    columns, by mu of each.
    """
    p, q = ({environment(e, mu): mu for mu in MU} for e in SIDES)
    first, second = lines["p"].str[0], lines["q"].str[0]
    across = lines[first.isin(p) & second.isin(q)]
    sides = across.assign(p=first.map(p), q=second.map(q))
    return sides.pivot_table(index="p", columns="q", values=what, aggfunc="mean")


def computed_by_color() -> pd.DataFrame:
    """Compute Figure 4a for features that hold digit and color, from the construction."""
    return _grid(
        E, lambda p, q: exact_shift(colored_table(p, NOISE), colored_table(q, NOISE))["cor"]
    )


def computed_by_blue(what: str) -> pd.DataFrame:
    """Compute Figure 4b or 4c for features that hold digit, color and share of blue.

    A Gaussian has some density everywhere, so a feature counts as one side's where the posterior of
    the other is below :data:`DELTA`.
    """
    sigma, b = SIGMA[what], np.linspace(0, 1, 2001)
    b = (b[1:] + b[:-1]) / 2

    def table(e: float, mu: float) -> np.ndarray:
        blue = truncnorm.pdf(b, -mu / sigma, (1 - mu) / sigma, loc=mu, scale=sigma)
        return (colored_table(e, NOISE)[:, :, None] * (blue / blue.sum())).reshape(2, -1)

    def value(mu_p: float, mu_q: float) -> float:
        p, q = table(SIDES[0], mu_p), table(SIDES[1], mu_q)
        p_z, q_z = p.sum(0), q.sum(0)
        posterior = p_z / (p_z + q_z)
        apart = np.minimum(posterior, 1 - posterior) < DELTA
        if what == "div":
            return float(np.abs(p_z - q_z)[apart].sum() / 2)
        common = ~apart
        differ = np.abs(p[:, common] / p_z[common] - q[:, common] / q_z[common]).sum(0)
        return float((np.sqrt(p_z * q_z)[common] * differ).sum() / 2)

    return _grid(MU, value)


def _grid(numbers: Sequence[float], value: Callable[[float, float], float]) -> pd.DataFrame:
    return pd.DataFrame(
        [[value(p, q) for q in numbers] for p in numbers], index=numbers, columns=numbers
    )


def draw(panels: Mapping[tuple[str, str], pd.DataFrame], out: Path) -> None:
    """Draw a heat map for each estimator (lines) and part of the paper's figure (columns)."""
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*panels, strict=True))
    with canvas("blue_digits", 3.3 * len(columns), 3.1 * len(rows)) as figure:
        axes_of = figure.subplots(len(rows), len(columns), squeeze=False)
        for (row, name), (column, title) in product(enumerate(rows), enumerate(columns)):
            axes, values = axes_of[row, column], panels[name, title]
            axes.imshow(values, cmap="Blues", vmin=0, vmax=1, origin="lower")
            for (i, j), number in np.ndenumerate(values.to_numpy()):
                if np.isfinite(number):
                    # no -0.00
                    color, text = (
                        "white" if number > 0.6 else "black",
                        f"{round(number, 2) + 0:.2f}",
                    )
                    axes.text(j, i, text, ha="center", va="center", color=color, fontsize=8)
            axes.set_xticks(range(len(values.columns)), values.columns)
            axes.set_yticks(range(len(values.index)), values.index)
            label = "mean of blue where e = {}" if column else "e"
            axes.set_xlabel(label.format(SIDES[1]))
            axes.set_ylabel(label.format(SIDES[0]))
            axes.set_title(f"{name}: {title}", fontsize=9)
        figure.savefig(out, dpi=110)


def beside_the_paper(ours: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Set our shifts beside each line of the paper's Table 3, with the deviation over trials and
    the share in T.
    """
    table = {}
    for row, cells in published("ye2022_table3").values.items():
        table[row] = {f"paper {what}": f"{cells[what].mean:.2f}" for what in SIGMA}
        for name, part in ours[row].groupby("estimator"):
            for what in SIGMA:
                table[row][f"{name} {what}"] = _text(part[what])
            if name == "ood_bench":
                in_t = part["diagnostics"].map(lambda diagnostics: diagnostics["in_t"])
                inside = part["cor"] / in_t
                table[row]["points in T"] = f"{in_t.min():.2f} to {in_t.max():.2f}"
                table[row]["cor / points in T"] = f"{inside.min():.2f} to {inside.max():.2f}"
    return pd.DataFrame.from_dict(table, orient="index")


def _text(values: pd.Series) -> str:
    """Format the mean of trials, its deviation, and how many have a value where not all do."""
    known = values.dropna()
    spread = f" ± {known.std():.2f}" if len(known) > 1 else ""
    count = "" if len(known) == len(values) else f" ({len(known)} of {len(values)})"
    return f"{round(known.mean(), 2) + 0:.2f}{spread}{count}" if len(known) else "none"  # no -0.00


def main() -> None:
    """Estimate, print and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder of pictures and estimates")
    work = parser.parse_args().work
    for what, sigma in SIGMA.items():
        folder, begun = work / "pictures" / what, work / "begun"
        if not folder.exists():
            shutil.rmtree(begun, ignore_errors=True)
            write_pictures(begun, Path(os.environ["DGBENCH_DATA_DIR"]), sigma)
            folder.parent.mkdir(exist_ok=True)
            begun.rename(folder)
    colored, same = estimates(work / "color", DIGITS), estimates(work / "same", DIGITS, SAME)
    roots = {what: f"dataset.root={work / 'pictures' / what}" for what in SIGMA}
    blue = {what: estimates(work / what, *PICTURES, roots[what], "trials=1") for what in SIGMA}
    sides = f"dataset.environments=[{environment(SIDES[0], MU[0])},{environment(SIDES[0], MU[-1])}]"
    apart = estimates(work / "apart", *PICTURES, roots["div"], sides)
    titles = {
        "color": "correlation shift, no blue",
        "div": "diversity shift, deviation 0.1",
        "cor": "correlation shift, deviation 0.25",
    }
    panels = {}
    for name in ESTIMATORS:
        panels[name, titles["color"]] = of_color(colored[colored["estimator"] == name])
        panels |= {
            (name, titles[what]): of_blue(blue[what][blue[what]["estimator"] == name], what)
            for what in SIGMA
        }
    panels["computed", titles["color"]] = computed_by_color()
    panels |= {("computed", titles[what]): computed_by_blue(what) for what in SIGMA}
    for (name, title), values in panels.items():
        print(f"{name}: {title}\n{values.round(2).to_string()}\n")
    pairs = {
        f"cmnist/{p}|{q}": part
        for (p, q), part in colored.groupby([colored["p"].str[0], colored["q"].str[0]])
    }
    print(beside_the_paper({**pairs, "cmnist/0.10|0.10": same, "cmnist/blue": apart}).to_string())
    draw(panels, ROOT / "docs" / "figures" / "blue_digits.png")


if __name__ == "__main__":
    main()
