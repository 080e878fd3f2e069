"""Data sets: official files, folders, arrays; subsets, batches, augmentation."""
