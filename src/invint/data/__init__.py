"""Data sets: official files, folders, arrays; subsets, batches, augmentation."""

from invint.data.dataset import Dataset, Part
from invint.data.registry import DATASETS, fetch_dataset, load_dataset

__all__ = ["DATASETS", "Dataset", "Part", "fetch_dataset", "load_dataset"]
