#!/bin/sh
# What can only be checked where there is a CUDA device: correctness against the CPU in float32, then speed in bfloat16.
#
#     sh benchmarks/gpu_check.sh [MODEL]
#
# Takes under ten minutes; leaves nothing behind. PYTHON names an interpreter that has enginecore and a torch with CUDA.
# MODEL is a folder, a GGUF file or a hub id; by default the packaged SmolLM2. Exit code 0: all that was checked is right.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
exec timeout 590 "$PYTHON" benchmarks/gpu_check.py "$@"
