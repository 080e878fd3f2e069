"""Show where the time of a training step goes on a GPU, kernel by kernel.

cuDNN chooses the algorithm of a convolution by heuristics (`--tried 0`), or tries the first few
they propose and keeps the fastest, which costs time in the first step.

usage: python benchmarks/profile_step.py [--network sfcnn] [--head max] [--batch 64] [--tried 10]
                                         [--compile] [--plain] [--strict]
"""

import argparse
import time
from collections.abc import Callable

import torch
from steps import compared, plain, stepping
from timing import in_turn
from torch.profiler import ProfilerActivity, profile


def kernels(step: Callable[[], object], rows: int) -> str:
    """Return the kernels of two steps, the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        step()
        step()
        torch.cuda.synchronize()
    times = sorted(
        (
            (each.self_device_time_total / 2, each.count // 2, each.key)
            for each in trace.key_averages()
        ),
        reverse=True,
    )
    total = sum(each[0] for each in times)
    lines = [f"{1e-3 * took:8.3f} ms {count:4} × {name[:90]}" for took, count, name in times[:rows]]
    return "\n".join([f"{1e-3 * total:8.3f} ms in all kernels", *lines])


def main() -> None:
    """Time a step and list its kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="sfcnn", help="network (sfcnn)")
    parser.add_argument("--head", default="max", help="head (max)")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--tried", type=int, default=10, help="algorithms tried, 0 for none (10)")
    parser.add_argument("--rows", type=int, default=18, help="kernels listed (18)")
    parser.add_argument("--compile", action="store_true", help="compile the network")
    parser.add_argument("--plain", action="store_true", help="the plain network of the same shapes")
    parser.add_argument("--strict", action="store_true", help="algorithms that repeat their bits")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(options.strict)
    torch.backends.cudnn.benchmark = options.tried > 0
    torch.backends.cudnn.benchmark_limit = options.tried
    model = plain(options.network) if options.plain else compared(options.network, options.head)
    step = stepping(model, options.network, options.batch, options.compile)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    (seconds,) = in_turn([step], 5)
    print(f"{options}\nfirst step {first:.1f} s, then {1e3 * seconds:.2f} ms")
    print(kernels(step, options.rows))


if __name__ == "__main__":
    main()
