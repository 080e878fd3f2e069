"""Measure the selection of monomials: how fast, how much smaller, and what it finds.

- Least squares: 1,000 exchanges with features given, 12,000 samples, 64 channels, 5 monomials.
- Pruning: parameters, time and memory of a training step of `sfcnn-small` from 50 monomials to 5.
- Planted: 3 of 16 candidates carry the label; the share of them among the 3 of highest score.

usage: python benchmarks/selection.py [--exchanges 1000] [--turns 5] [--seeds 6] [--record NAME]
"""

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from record import markdown_table, publish, recording_parser, this_command, write_record
from timing import DEVICE, in_turn, kept
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint import Cyclic, create_model
from invint.models import Network
from invint.nn import MonomialIntegration, Monomials
from invint.selection import best, connectivity, exchange, find_monomials, magnitude, prune
from invint.selection.least_squares import centred_classes, fitted, standardised
from invint.selection.pruning import first_dense

SAMPLES, CHANNELS, COUNT, CLASSES = 12_000, 64, 5, 10
CARRIERS = (2, 7, 12)
TRAININGS = [(0.003, 0.0), (0.01, 0.0), (0.01, 1.0)]  # learning rate, weight decay


def exchanges(tries: int) -> dict[str, Any]:
    """Time the linear algebra of exchanges, features drawn beforehand and alike as real ones."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    means = torch.randn(CLASSES, CHANNELS, 1, generator=generator)
    shared = 0.3 * means[labels] + torch.randn(SAMPLES, CHANNELS, 1, generator=generator)
    pool = [
        (shared + 0.3 * torch.randn(SAMPLES, CHANNELS, 1, generator=generator)).to(DEVICE)
        for _ in range(20)
    ]
    drawn = iter(range(COUNT, 10**9))

    def features_of(monomials: Monomials) -> Tensor:
        numbers = [int(row[1]) for row in monomials.distances]
        return torch.cat([pool[number % len(pool)] for number in numbers], dim=2)

    def numbered(*numbers: int) -> Monomials:
        zeros = tuple((0.0, 0.0) for _ in numbers)
        return Monomials(tuple((0.0, float(number)) for number in numbers), zeros, zeros)

    start = time.perf_counter()
    found = exchange(
        features_of,
        labels.to(DEVICE),
        numbered(*range(COUNT)),
        lambda: numbered(next(drawn)),
        patience=tries,
        candidates=tries,
    )
    seconds = time.perf_counter() - start
    tried, accepted = len(found.accepted), sum(found.accepted)
    return {"what": "exchanges", "tried": tried, "accepted": accepted, "seconds": seconds}


def all_made(count: int) -> dict[str, Any]:
    """Time exchanges of which every one is made: the most that linear algebra can cost."""
    generator = torch.Generator().manual_seed(0)
    classes = centred_classes(torch.randint(0, CLASSES, (SAMPLES,), generator=generator))
    targets = classes.to(DEVICE)
    blocks = [torch.randn(SAMPLES, CHANNELS, generator=generator).to(DEVICE) for _ in range(20)]
    fit = fitted(standardised(torch.cat(blocks[:COUNT], dim=1)), targets, 1.0)
    start = time.perf_counter()
    for number in range(count):
        costs = fit.costs(CHANNELS)
        rest = fit.without(costs.index(min(costs)), CHANNELS)
        new = standardised(blocks[number % len(blocks)])
        fit = rest.extended(rest.extension(new, targets, 1.0))
    fit.costs(CHANNELS)
    seconds = time.perf_counter() - start
    return {"what": "exchanges", "tried": count, "accepted": count, "seconds": seconds}


def pruned(turns: int) -> list[dict[str, Any]]:
    """Compare a training step, and what backward keeps, before and after each pruning."""
    rows: list[dict[str, Any]] = []
    networks: list[Network] = []
    for count in (50, 25, 5):
        options = {"monomials": 50}
        network = create_model("sfcnn-small", head="monomials", head_options=options).to(DEVICE)
        if count < 50:
            prune(network, None, range(count))
        networks.append(network.train())
    x, labels = torch.rand(64, 1, 20, 20, device=DEVICE), torch.arange(64, device=DEVICE) % 10

    def step(network: Network) -> Callable[[], object]:
        leaves = list(network.parameters())
        return lambda: torch.autograd.grad(cross_entropy(network(x), labels), leaves)

    with torch.no_grad():
        maps = networks[0].head[0](networks[0].forward_features(x))  # type: ignore[index]

    def head_step(network: Network) -> Callable[[], object]:
        head = find_monomials(network)[2]
        return lambda: torch.autograd.grad(head(maps).sum(), head.exponents)

    times = in_turn([step(network) for network in networks], turns)
    heads = in_turn([head_step(network) for network in networks], turns)
    for network, seconds, of_head in zip(networks, times, heads, strict=True):
        rows.append(
            {
                "what": "pruned",
                "monomials": len(find_monomials(network)[2].exponents),
                "parameters": sum(each.numel() for each in network.parameters()),
                "step": seconds / times[0],
                "head": of_head / heads[0],
                "kept": kept(lambda network=network: network(x)),  # type: ignore[misc]
            }
        )
    return rows


def planted_problem() -> tuple[Monomials, Tensor, Tensor]:
    """Return candidates, maps of noise, and a label on which three of the candidates decide."""
    offsets = [(x, y) for x in range(1, 5) for y in range(4)]
    candidates = Monomials(
        tuple((0.0, math.hypot(x, y)) for x, y in offsets),
        tuple((0.0, math.atan2(y, x)) for x, y in offsets),
        tuple((1.0, 1.0) for _ in offsets),
    )
    maps = torch.rand(1000, 1, 9, 9, generator=torch.Generator().manual_seed(3)) ** 4
    maps /= maps.mean((1, 2, 3), keepdim=True)  # else all features follow the brightness
    with torch.no_grad():
        features = MonomialIntegration(1, 9, Cyclic(4), monomials=candidates)(maps)
    standard = (features - features.mean(0)) / features.std(0)
    total = standard[:, list(CARRIERS)].sum(1)
    return candidates, maps, (total > total.median()).long()


def planted(seeds: int) -> list[dict[str, Any]]:
    """Return the share of carriers among the highest scores, after some epochs, over seeds."""
    candidates, maps, labels = planted_problem()
    batches = list(zip(torch.split(maps, 100), torch.split(labels, 100), strict=True))
    methods: dict[str, Callable[[Network], Tensor]] = {
        "magnitude": lambda network: magnitude(first_dense(network)[1].weight, len(candidates)),
        "connectivity, running": lambda network: connectivity(
            network, batches, cross_entropy, statistics="running"
        ),
        "connectivity, batch": lambda network: connectivity(
            network, batches, cross_entropy, statistics="batch"
        ),
        "connectivity, signed": lambda network: connectivity(
            network, batches, cross_entropy, signed=True
        ),
    }
    rows = []
    for (rate, decay), epochs in itertools.product(TRAININGS, (0, 1, 2, 4, 8, 16)):
        hits = dict.fromkeys(methods, 0.0)
        for seed in range(seeds):
            torch.manual_seed(seed)
            network = _trained(candidates, batches, epochs, rate, decay)
            for name, scores in methods.items():
                found = set(best(scores(network), 3)) & set(CARRIERS)
                hits[name] += len(found) / 3 / seeds
        setting = {"lr": rate, "weight_decay": decay, "epochs": epochs, "seeds": seeds}
        rows.append({"what": "planted", **setting, **hits})
    return rows


def _trained(
    candidates: Monomials,
    batches: list[tuple[Tensor, Tensor]],
    epochs: int,
    rate: float,
    decay: float,
) -> Network:
    head = MonomialIntegration(1, 9, Cyclic(4), monomials=candidates)
    count = len(candidates)
    layers = [nn.BatchNorm1d(count), nn.Linear(count, 12), nn.BatchNorm1d(12), nn.ReLU()]
    network = Network(nn.Identity(), head, nn.Sequential(*layers, nn.Linear(12, 2))).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay)
    for _ in range(epochs):
        for maps, labels in batches:
            optimizer.zero_grad()
            cross_entropy(network(maps), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network


def smaller_table(rows: list[dict[str, Any]]) -> str:
    """Return what pruning saves as a table."""
    header = ["monomials", "parameters", "training step", "step of the head", "kept MB"]
    body = [
        [
            str(row["monomials"]),
            f"{row['parameters']:,}",
            f"{row['step']:.2f}",
            f"{row['head']:.2f}",
            f"{row['kept'] / 1e6:.2f}",
        ]
        for row in rows
        if row["what"] == "pruned"
    ]
    return markdown_table(header, body)


def planted_table(rows: list[dict[str, Any]]) -> str:
    """Return the share of carriers found as a table."""
    chosen = [row for row in rows if row["what"] == "planted"]
    settings = ("what", "lr", "weight_decay", "epochs", "seeds")
    names = [name for name in chosen[0] if name not in settings]
    body = [
        [
            f"{row['lr']:g}, {row['weight_decay']:g}",
            str(row["epochs"]),
            *(f"{row[name]:.2f}" for name in names),
        ]
        for row in chosen
    ]
    return markdown_table(["rate, decay", "epochs", *names], body)


def speed_line(rows: list[dict[str, Any]]) -> str:
    """Return how long the exchanges took, in words."""
    lines = [
        f"- {row['tried']:,} exchanges tried, {row['accepted']:,} made: {row['seconds']:.0f} s, "
        f"{1e3 * row['seconds'] / row['tried']:.0f} ms each"
        for row in rows
        if row["what"] == "exchanges"
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print the tables, and record them if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--exchanges", type=int, default=1000, help="candidates tried (1000)")
    parser.add_argument("--turns", type=int, default=5, help="timed calls of each kind (5)")
    parser.add_argument("--seeds", type=int, default=6, help="seeds of the planted problem (6)")
    options = parser.parse_args()
    rows = [exchanges(options.exchanges), all_made(options.exchanges)]
    rows += [*pruned(options.turns), *planted(options.seeds)]
    blocks = {
        "selection-speed": speed_line(rows),
        "selection-pruned": smaller_table(rows),
        "selection-planted": planted_table(rows),
    }
    for text in blocks.values():
        print(f"\n{text}\n")
    if options.record:
        print(write_record(options.record, this_command(), rows))
        for name, text in blocks.items():
            print(f"put {name} into {publish(name, text)}")


if __name__ == "__main__":
    main()
