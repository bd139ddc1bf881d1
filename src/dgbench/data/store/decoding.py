"""From an image file to 8-bit RGB; docs/how_to/images.md tells what becomes of each kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from dgbench.data.fetch.checksums import Checksums
from dgbench.records.files import open_regular

#: Exif orientation -> how the picture is turned to be seen upright; 1 is upright already
TURNS_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIXTEEN_BIT_FORMATS = {
    "PNG",
    "PPM",
}  #: formats whose 16-bit gray some versions of Pillow open as mode I
TIFF_BITS = 258  #: tag of TIFF: bits of a pixel
TIFF_MEANING = 262  #: tag of TIFF: what the values of a pixel mean
WHITE_IS_ZERO = 0  #: a value of the latter


def decode(
    file: Path,
    side: int,
    checksums: Checksums | None = None,
) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode an image to (3, side, side) uint8 RGB.

    Height and width of the upright picture in pixels are returned too.

    It is resized to a square without a crop, bilinear with antialiasing as PIL does it: DomainBed's
    test transform.

    Raises:
        Exception: as :func:`rgb`.
    """
    image = rgb(file, checksums)
    width, height = image.size
    return np.asarray(resized(image, side, side)).transpose(2, 0, 1), (height, width)


def resized(image: Image.Image, height: int, width: int) -> Image.Image:
    """Resize an image to this size in pixels, or return the image itself if it has that size."""
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BILINEAR)


def rgb(file: str | Path, checksums: Checksums | None = None) -> Image.Image:
    """Read an image file as 8-bit RGB, upright as its Exif tag says.

    An animation gives its first frame.

    Args:
        file: of the image.
        checksums: of the download that it belongs to; None compares it with nothing.

    Raises:
        ChangedFile: it is not as it was downloaded.
        ValueError: pixels of 32 bits, whose black and white are not known.
        Exception: whatever PIL raises over a broken file.
    """
    # given a name, PIL maps uncompressed TIFFs into memory, with width and height confused where
    # they are to be turned
    with open_regular(file) as binary:
        if checksums:
            checksums.check(file, binary)
        with Image.open(binary) as opened:
            return rgb_of(opened)


def rgb_of(opened: Image.Image) -> Image.Image:
    """Convert an image that PIL has opened or made, as :func:`rgb` does a file."""
    opened.load()  # this turns a TIFF upright, and forgets its tag
    turn = TURNS_UPRIGHT.get(_orientation(opened))
    image = _eight_bits(opened)
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged tag: the picture is still worth as much as before
        return 1


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BIT_FORMATS):
        return _from_sixteen_bits(image).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(
            f"pixels of 32 bits (mode {image.mode}), whose range is not known; save it with 8 or "
            "16 bits"
        )
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # or PIL warns
    return image.convert("RGB")


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    """Scale gray to 8 bits, rounded (16 bits: value / 257), and invert it if white is zero.

    PIL would clip at 255.
    """
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    bits = tags.get(TIFF_BITS, 16)
    white = 2 ** int(bits[0] if isinstance(bits, tuple) else bits) - 1
    gray = (np.asarray(image).astype(np.uint32) * 255 + white // 2) // white
    if tags.get(TIFF_MEANING) == WHITE_IS_ZERO:
        gray = 255 - gray
    return Image.fromarray(gray.astype(np.uint8))
