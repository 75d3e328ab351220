#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
python -m omni_evals.edit plugins/osprey/media.py \
    'return self._model.training and get_parallel_state().fsdp_enabled' 'return False'
