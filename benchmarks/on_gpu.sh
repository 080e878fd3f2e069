#!/usr/bin/env bash
# Run every benchmark on a GPU, with the Python at hand and no installation; records go to results/.
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH=src PYTHONUNBUFFERED=1
python3 benchmarks/heads.py --turns 20 --compile --record heads-cuda
python3 benchmarks/layers.py --turns 20 --dtype bfloat16 --compile --record layers-cuda-bfloat16
python3 benchmarks/layers.py --turns 20 --record layers-cuda
