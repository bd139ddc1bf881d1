"""What becomes of each kind of image file: docs/how_to/images.md has the table."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from PIL import ExifTags, Image

from dgbench.data.datasets.image_table import ImageTable, decoded_folder, table_of
from dgbench.data.store.decoding import decode
from dgbench.data.store.photographs import image_store

SIDE = 16
VALUES = np.linspace(0, 65535, SIDE * SIDE).round().astype(np.uint16).reshape(SIDE, SIDE)
EIGHT = np.round(VALUES / 257).astype(np.uint8)  # the same picture with 8 bits

#: what a camera held in that orientation stores of an upright picture (Exif 2.3, table 6)
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


def gray(file: Path) -> np.ndarray:
    """(side, side) values of a gray picture, after a look at the three channels."""
    pixels, size = decode(file, SIDE)
    assert pixels.shape == (3, SIDE, SIDE)
    assert pixels.dtype == np.uint8
    assert size == (SIDE, SIDE)
    assert (pixels == pixels[0]).all()
    return pixels[0]


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bits_keep_their_gray_values(tmp_path: Path, name: str) -> None:
    Image.fromarray(VALUES).save(tmp_path / name)
    np.testing.assert_array_equal(gray(tmp_path / name), EIGHT)


@pytest.mark.parametrize(("bits", "meaning"), [(16, 0), (12, 1)])
def test_a_tiff_says_what_its_numbers_mean(tmp_path: Path, bits: int, meaning: int) -> None:
    """White may be 0, and 12 bits may be packed, which PIL cannot write: two rows of known values
    by hand.
    """
    if bits == 16:
        tags = {262: 0}
        Image.fromarray(65535 - VALUES).save(tmp_path / "a.tif", tiffinfo=tags)
        np.testing.assert_array_equal(gray(tmp_path / "a.tif"), EIGHT)
        return
    pairs = [0, 4095] * (SIDE * SIDE // 2)
    packed = b"".join(
        bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255])
        for a, b in zip(pairs[::2], pairs[1::2], strict=True)
    )
    entries = [
        (256, SIDE),
        (257, SIDE),
        (258, 12),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, SIDE),
        (279, len(packed)),
    ]
    start = 8 + len(packed)
    directory = len(entries).to_bytes(2, "little") + b"".join(
        tag.to_bytes(2, "little") + b"\x04\0" + b"\1\0\0\0" + value.to_bytes(4, "little")
        for tag, value in entries
    )
    (tmp_path / "a.tif").write_bytes(
        b"II*\0" + start.to_bytes(4, "little") + packed + directory + bytes(4)
    )
    assert np.unique(gray(tmp_path / "a.tif")).tolist() == [0, 255]


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_pictures_stand_upright(tmp_path: Path, orientation: int, name: str) -> None:
    """Four quarters of different gray, 32 high and 16 wide: no two orientations agree."""
    upright = np.repeat(np.repeat(np.array([[0, 80], [160, 240]], np.uint8), SIDE, 0), SIDE // 2, 1)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stored = np.ascontiguousarray(STORED[orientation](upright))
    Image.fromarray(stored).save(tmp_path / name, exif=exif)
    pixels, size = decode(tmp_path / name, 2 * SIDE)
    assert size == (32, 16)
    quarters = pixels[0, SIDE // 2 :: SIDE, SIDE // 2 :: SIDE]  # their centers
    np.testing.assert_allclose(quarters.astype(int), [[0, 80], [160, 240]], atol=3)


def test_a_16_bit_picture_is_turned_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    Image.fromarray(np.ascontiguousarray(VALUES[::-1, ::-1])).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(gray(tmp_path / "a.png"), EIGHT)


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0nonsense", b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\xff\xff\xff"]
)
def test_a_damaged_exif_tag_is_no_damaged_picture(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(EIGHT).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(gray(tmp_path / "a.png"), EIGHT)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_are_refused_by_name(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (SIDE, SIDE)).save(tmp_path / "a.tif")
    with pytest.raises(
        ValueError, match=rf"pixels of 32 bits \(mode {mode}\).*save it with 8 or 16 bits"
    ):
        decode(tmp_path / "a.tif", SIDE)


RED, BLUE = (200, 10, 20), (10, 20, 200)


@pytest.mark.parametrize(
    ("name", "mode", "color", "expected"),
    [
        ("rgb.png", "RGB", RED, RED),
        (
            "alpha.png",
            "RGBA",
            (*RED, 0),
            RED,
        ),  # transparent: the color below, as torchvision's loader has it
        ("gray.png", "L", 77, (77, 77, 77)),
        ("gray_alpha.png", "LA", (77, 128), (77, 77, 77)),
        ("black_and_white.png", "1", 1, (255, 255, 255)),
        ("cmyk.jpg", "CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("cmyk.tif", "CMYK", (255, 255, 0, 0), (0, 0, 255)),
        pytest.param(
            "ycbcr.tif",
            "YCbCr",
            (76, 85, 255),
            (254, 0, 0),
            marks=pytest.mark.skipif(
                int(PIL.__version__.split(".")[0]) < 13, reason="older Pillow cannot read its own"
            ),
        ),
    ],
)
def test_other_modes(
    tmp_path: Path, name: str, mode: str, color: object, expected: tuple[int, ...]
) -> None:
    Image.new(mode, (SIDE, SIDE), color).save(tmp_path / name)  # type: ignore[arg-type]
    pixels, _ = decode(tmp_path / name, SIDE)
    np.testing.assert_allclose(pixels[:, 5, 5].astype(int), expected, atol=3)


@pytest.mark.parametrize("transparency", [0, bytes([0, 128])])
@pytest.mark.parametrize("name", ["a.png", "a.gif"])
def test_a_palette_with_transparency(tmp_path: Path, name: str, transparency: int | bytes) -> None:
    """The colors of the palette, transparent or not, and no warning."""
    image = Image.new("P", (SIDE, SIDE))
    image.putpalette([*RED, *BLUE])
    image.paste(1, (0, 0, SIDE, SIDE // 2))
    if name.endswith(".gif") and isinstance(transparency, bytes):
        transparency = 1
    image.save(tmp_path / name, transparency=transparency)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels, _ = decode(tmp_path / name, SIDE)
    assert pixels[:, 0, 0].tolist() == list(BLUE)
    assert pixels[:, -1, -1].tolist() == list(RED)


def table(root: Path) -> ImageTable:
    """A dark and a bright 16-bit picture."""
    for label, values in (("dark", VALUES // 4), ("bright", VALUES)):
        (root / "env" / label).mkdir(parents=True)
        Image.fromarray(values).save(root / "env" / label / "a.png")
    rows = [(f"env/{label}/a.png", "env", label, None) for label in ("dark", "bright")]
    return table_of(root, rows, ["env"], "same")


@pytest.mark.parametrize("kind", ["ram", "file", "none"])
def test_every_store_decodes_alike(tmp_path: Path, kind: str) -> None:
    store = image_store(
        table(tmp_path / "images"),
        side=SIDE,
        kind=kind,
        cache=tmp_path / "cache",
        workers=1,
        device_share=0,
    )
    images, _ = store.rows(torch.tensor([0, 1]))
    np.testing.assert_array_equal(images[0, 0].numpy(), EIGHT)
    np.testing.assert_array_equal(images[1, 2].numpy(), np.round(VALUES // 4 / 257))


def test_a_cache_of_the_first_way_of_decoding_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = table(tmp_path / "images")
    now = decoded_folder(found, SIDE, tmp_path)
    monkeypatch.setattr("dgbench.data.datasets.image_table.DECODING_VERSION", 1)
    assert decoded_folder(found, SIDE, tmp_path) != now
