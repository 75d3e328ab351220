#!/bin/bash
set -e
cd "${EVAL_APP:-/app}"
python -m omni_evals.edit plugins/wan_t2v/pipeline_config.py 'return 1.0 / deviation, None' 'return 1.0 / deviation, mean'
