#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
python -m omni_evals.edit plugins/osprey/media.py '[before : before + mine]' '[:mine]'
