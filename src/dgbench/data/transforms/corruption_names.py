"""Names of the 15 corruptions, in the order of the paper, and what must be known of them without torch."""

NAMES = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
VERSION = 1  # raise whenever a corruption's output changes: files made by older code are then made again
SMALLEST = 32  # pixels; trails and kernels are up to 41 pixels long
