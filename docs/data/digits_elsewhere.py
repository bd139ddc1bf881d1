"""A model that dgbench did not train: a small CNN in plain PyTorch, on digits turned by 0 and 15
degrees.

Writes ``rotated_digits/ANGLE/DIGIT/NUMBER.png`` (three angles, 599 digits each, 32 x 32 pixels),
trains on ``deg00`` and ``deg15``, and saves the network as ``cnn.pt2`` (torch.export) and its
tensors as ``cnn.pth``.

    python docs/data/digits_elsewhere.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

ANGLES = (0, 15, 30)
SIDE = 32


def network() -> nn.Sequential:
    """Build a network that maps (n, 3, 32, 32) images to (n, 10) logits."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def write_pictures(root: Path) -> dict[int, tuple[Tensor, Tensor]]:
    """Write the pictures, each digit at one angle; return angle -> images in [0, 1] and labels."""
    digits, found = load_digits(), {}
    for place, angle in enumerate(ANGLES):
        images, labels = [], digits.target[place :: len(ANGLES)]
        for number, (pixels, label) in enumerate(
            zip(digits.images[place :: len(ANGLES)], labels, strict=True)
        ):
            picture = Image.fromarray((pixels * 15.9).astype(np.uint8)).resize(
                (SIDE, SIDE), Image.Resampling.BILINEAR
            )
            picture = picture.rotate(angle).convert("RGB")
            folder = root / f"deg{angle:02}" / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            picture.save(folder / f"{number:03}.png")
            images.append(np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 255)
        found[angle] = torch.from_numpy(np.stack(images)), torch.from_numpy(labels)
    return found


def main() -> None:
    """Write, train, save."""
    torch.manual_seed(0)
    pictures = write_pictures(Path("rotated_digits"))
    x, y = (torch.cat([pictures[angle][part] for angle in (0, 15)]) for part in (0, 1))
    model = network()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(400):
        batch = torch.randint(len(x), (64,))
        adam.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        adam.step()
    model.eval()
    program = torch.export.export(
        model, (x[:2],), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)
    )
    torch.export.save(program, "cnn.pt2")
    torch.save(model.state_dict(), "cnn.pth")
    print(f"trained on {len(x)} images, error there {(model(x).argmax(1) != y).float().mean():.1%}")


def predict(x: Tensor) -> Tensor:
    """Compute the logits of the saved network, for ``dgbench evaluate
    model=digits_elsewhere:predict``.
    """
    model = network()
    model.load_state_dict(torch.load("cnn.pth", weights_only=True))
    with torch.no_grad():
        return model(x)


if __name__ == "__main__":
    main()
