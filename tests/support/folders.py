"""Folders of real digits, written as PNG files."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def digit_pictures(digit: int, *, count: int = 60, first: int = 0) -> list[Image.Image]:
    """Return digits of scikit-learn as they are, 16 x 16 pixels in the middle of 20 x 20."""
    digits = load_digits()
    chosen = digits.images[digits.target == digit][first : first + count]
    pictures = []
    for pixels in chosen:
        small = Image.fromarray((pixels * 15.9).astype("uint8"))
        picture = Image.new("L", (20, 20))
        picture.paste(small.resize((16, 16), Image.Resampling.BICUBIC), (2, 2))
        pictures.append(picture)
    return pictures


def turned(pictures: Iterable[Image.Image], seed: int = 0) -> list[Image.Image]:
    """Turn each picture by an angle of its own."""
    generator = np.random.default_rng(seed)
    return [each.rotate(generator.uniform(0, 360), Image.Resampling.BICUBIC) for each in pictures]


def write(folder: Path, pictures: Iterable[Image.Image]) -> list[Path]:
    """Save pictures under numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, picture in enumerate(pictures):
        paths.append(folder / f"{number:03}.png")
        picture.save(paths[-1])
    return paths


def six_and_nine(root: Path) -> Path:
    """Write sixes, and other sixes turned by 180° as nines: orientation alone tells them apart."""
    write(root / "6", digit_pictures(6, count=80))
    write(root / "9", [each.rotate(180) for each in digit_pictures(6, count=80, first=80)])
    write(root / "0", digit_pictures(0, count=80))
    return root


def turned_digits(root: Path) -> Path:
    """Write digits to train on as they are, and others to test on turned by all angles."""
    for digit in (0, 1, 4, 7):
        pictures = digit_pictures(digit, count=140)
        write(root / "train" / str(digit), pictures[:60])
        write(root / "test" / str(digit), turned(pictures[60:], seed=digit))
    return root


def listed_digits(root: Path) -> Path:
    """Write digits beside a CSV file that names label and group; a group holds three pictures."""
    rows = []
    for digit in (0, 1):
        paths = write(root / "pictures" / f"batch-{digit}", digit_pictures(digit, count=36))
        for number, path in enumerate(paths):
            group = f"slide {digit}-{number // 3}"
            name = "nought" if digit == 0 else "one"
            rows.append([str(path.relative_to(root)), name, group])
    with (root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label", "group"], *rows])
    return root
