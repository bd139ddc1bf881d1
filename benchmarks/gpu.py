"""What a GPU makes of dgbench, in one go of less than ten minutes: speed, memory, and whether
numbers are the CPU's.

Measures the device's rate of matrix products in each precision; a stack of runs against a bare
loop, for a perceptron and a convolutional network; images per second of training, with memory, for
ResNet-18, ResNet-50 and ViT-B/16 with random weights in single precision, TF32 and bfloat16; and
how far steps on the device are from the same on the CPU. Nothing is downloaded. Without a GPU it
runs smaller on the CPU, and says so. Run it with `make bench-gpu`, or ``python benchmarks/gpu.py
--output gpu.json`` where dgbench is installed otherwise (docs/how_to/gpu.md).
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from images import pictures
from plan_costs import Case
from stacked import DEVICE, matmul_rate, measured, synchronize

from dgbench.training.processes import prepare_process

ON_GPU = DEVICE == "cuda"
SECONDS = 5.0 if ON_GPU else 1.0  # of one measurement of training
RUNS = (5, 25, 75) if ON_GPU else (5,)
SIDE, BATCH = (224, 32) if ON_GPU else (32, 2)
BUDGETS = (4000, 1000) if ON_GPU else (400, 30)  # steps x runs of one measurement of a stack
NETWORKS = ("resnet18", "resnet50", "vit_b16")
PRECISIONS = {"single": ("highest", False)}  # trainer.matmul, autocast
if ON_GPU:  # few CPUs have others
    PRECISIONS |= {"tf32": ("high", False), "bf16": ("high", True)}
EQUAL = {  # network -> overrides
    "mlp": ("backbone=mlp", "backbone.width=128"),
    "mnist_cnn": ("backbone=mnist_cnn",),
    "resnet18": ("backbone=resnet18",),
}
ALGORITHMS = ("erm", "irm", "coral", "mldg", "sam") if ON_GPU else ("erm", "mldg")
EQUAL_STEPS, DOUBLE, SINGLE = 5, 1e-9, 1e-2


def set_precision(matmul: str) -> None:
    """Set the precision of matrix products and convolutions as ``trainer.matmul`` does."""
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = matmul != "highest"


def machine() -> dict[str, Any]:
    """Describe the device that is measured, and the software on it."""
    about: dict[str, Any] = {
        "device": DEVICE,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if ON_GPU:
        card = torch.cuda.get_device_properties(0)
        return {
            **about,
            "card": card.name,
            "gigabytes": round(card.total_memory / 1e9, 1),
            "cuda": torch.version.cuda,
        }
    return {**about, "card": None, "threads": torch.get_num_threads()}


def peaks() -> dict[str, float]:
    """Measure the TFLOP/s of a large matrix product, by precision."""
    rates = {}
    for name, (matmul, half) in PRECISIONS.items():
        set_precision(matmul)
        rates[name] = matmul_rate(torch.bfloat16 if half else torch.float32) / 1e12
    return rates


def stacks(folder: Path, peak: float) -> list[dict[str, Any]]:
    """Measure stacks of runs against a bare loop; the convolutional network's images are random."""
    set_precision("highest")
    files = [
        f"dataset.root={pictures(folder / 'pictures', 28)}",
        "dataset.image_size=28",
        "dataset.augment=none",
    ]
    cases = {
        "mlp-128, digits 8x8": ["dataset.base=digits", "backbone.width=128"],
        "mnist_cnn, 28x28": [
            "dataset=image_folder",
            *files,
            "backbone=mnist_cnn",
            f"paths.cache_dir={folder}/cache",
        ],
    }
    return [
        {
            "case": title,
            "runs": n,
            **(speeds := asdict(measured(words, n, budget, 20.0))),
            "of_peak": speeds["flops"] / 1e12 / peak,
        }
        for (title, words), budget in zip(cases.items(), BUDGETS, strict=True)
        for n in RUNS
    ]


def training(name: str, precision: str, peak: float) -> dict[str, Any]:
    """Measure images per second of ERM on random images in memory, memory in GB, and the share of
    the product rate.
    """
    matmul, half = PRECISIONS[precision]
    set_precision(matmul)
    if ON_GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    case = Case(
        [f"backbone={name}", f"dataset.image_size={SIDE}", f"hparams.batch_size={BATCH}"], DEVICE
    )
    steps, n = 0, len(case.batch.y)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
        case.steps(3 if ON_GPU else 1)
        synchronize()
        begun = time.perf_counter()
        while time.perf_counter() - begun < SECONDS:
            # reads the losses of several steps at once, as training does
            steps += len(case.steps(4 if ON_GPU else 1))
        synchronize()
    per_second = steps / (time.perf_counter() - begun)
    return {
        "network": name, "precision": precision, "side": SIDE, "batch": n,
        "images_per_second": per_second * n, "of_peak": per_second * case.cost.step / 1e12 / peak,
        "counted_gigabytes": case.cost.memory / 1e9,
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9 if ON_GPU else None,
    }  # fmt: skip


def differences() -> list[dict[str, Any]]:
    """Find the largest relative difference of the losses of some steps on the device from those on
    the CPU.
    """
    set_precision("highest")
    rows = []
    for network, words in EQUAL.items():
        for algorithm in ALGORITHMS:
            row: dict[str, Any] = {"network": network, "algorithm": algorithm}
            for kind, precision in (("double", "64-true"), ("single", "32-true")):
                overrides = [
                    f"algorithm={algorithm}",
                    "dataset.image_size=32",
                    f"trainer.precision={precision}",
                ]
                losses = [
                    Case([*words, *overrides], device).steps(EQUAL_STEPS).cpu()
                    for device in ("cpu", DEVICE)
                ]
                row[kind] = float(((losses[1] - losses[0]).abs() / losses[0].abs()).max())
            rows.append({**row, "equal": row["double"] <= DOUBLE and row["single"] <= SINGLE})
    return rows


def main() -> None:
    """Measure everything, print the tables and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("gpu.json"),
        help="JSON file to write, gpu.json by default",
    )
    options = parser.parse_args()
    prepare_process()
    begun = time.perf_counter()
    result: dict[str, Any] = {"machine": machine(), "matmul_tflops": peaks()}
    peak = result["matmul_tflops"]
    place = result["machine"]["card"] or "no GPU here: the CPU, with small images and few runs"
    print(f"torch {torch.__version__}, {place}; matrix products in TFLOP/s: ", end="")
    print(", ".join(f"{name} {rate:.3g}" for name, rate in peak.items()) + "\n")

    print(
        f"{'steps x runs per second':<26}{'runs':>6}{'bare':>10}{'stacked':>10}"
        f"{'x bare':>8}{'auto':>8}{'of peak':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        result["stacked"] = stacks(Path(folder), peak["single"])
    for row in result["stacked"]:
        rates = f"{row['bare']:>10.1f}{row['stacked']:>10.1f}"
        ratios = f"{row['over_bare']:>8.2f}{row['auto']:>8.2f}{row['of_peak']:>9.1%}"
        print(f"{row['case']:<26}{row['runs']:>6}{rates}{ratios}", flush=True)

    title = f"training, {SIDE} pixels, 3 x {BATCH}"
    print(f"\n{title:<26}{'precision':>10}{'images/s':>10}{'of peak':>9}{'GB':>7}{'counted':>9}")
    result["training"] = []
    for network in NETWORKS:
        for precision in PRECISIONS:
            row = training(network, precision, peak[precision])
            result["training"].append(row)
            memory = "-" if row["gigabytes"] is None else f"{row['gigabytes']:.1f}"
            speed = f"{row['images_per_second']:>10.1f}{row['of_peak']:>9.1%}"
            memories = f"{memory:>7}{row['counted_gigabytes']:>9.1f}"
            print(f"{network:<26}{precision:>10}{speed}{memories}", flush=True)

    result["equality"] = differences()
    unequal = [
        f"{row['algorithm']} on {row['network']}" for row in result["equality"] if not row["equal"]
    ]
    worst = {kind: max(row[kind] for row in result["equality"]) for kind in ("double", "single")}
    print(
        (
            f"\nlosses of {EQUAL_STEPS} steps, {len(result['equality'])} networks and algorithms, "
            "against the CPU's: "
        ),
        end="",
    )
    print(
        f"largest relative difference {worst['double']:.1e} in double, {worst['single']:.1e} in "
        "single precision"
    )
    print(
        f"not equal: {', '.join(unequal)}" if unequal else "all equal",
        "" if ON_GPU else "(the CPU with itself)",
    )
    result["seconds"] = time.perf_counter() - begun
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{options.output} after {result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
