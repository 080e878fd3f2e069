"""Data sets: official files, folders, arrays; subsets, batches, augmentation."""

from invint.data.dataset import Dataset, Split
from invint.data.registry import DATASETS, fetch_dataset, load_dataset

__all__ = ["DATASETS", "Dataset", "Split", "fetch_dataset", "load_dataset"]
