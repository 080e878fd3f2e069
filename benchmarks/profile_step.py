"""Show where the time of a training step goes on a GPU, kernel by kernel.

First with the convolution algorithms that cuDNN's heuristics choose, then with those that it finds
fastest by trying (`torch.backends.cudnn.benchmark`), and how long trying takes.

usage: python benchmarks/profile_step.py [--network sfcnn] [--head max] [--batch 64] [--compile]
"""

import argparse
import time
from collections.abc import Callable

import torch
from steps import SIDES, stepping
from timing import in_turn
from torch.profiler import ProfilerActivity, profile

from invint import create_model


def kernels(step: Callable[[], object]) -> str:
    """Return the kernels of two steps, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        step()
        step()
        torch.cuda.synchronize()
    table: str = trace.key_averages().table(
        sort_by="cuda_time_total", row_limit=15, max_name_column_width=60
    )
    return table


def main() -> None:
    """Profile a step both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="sfcnn", help="network (sfcnn)")
    parser.add_argument("--head", default="max", help="head (max)")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--compile", action="store_true", help="compile the network")
    options = parser.parse_args()
    channels, side = SIDES[options.network]
    model = create_model(options.network, head=options.head, in_channels=channels, image_size=side)
    step = stepping(model, options.network, options.batch, options.compile)
    for tried in (False, True):
        torch.backends.cudnn.benchmark = tried
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        (seconds,) = in_turn([step], 5)
        name = "tried" if tried else "heuristics"
        print(f"{name}: first step {first:.1f} s, step {1e3 * seconds:.2f} ms", flush=True)
        print(kernels(step), flush=True)


if __name__ == "__main__":
    main()
