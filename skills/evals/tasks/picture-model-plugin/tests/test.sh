#!/bin/bash
# Paths are Harbor's, unless a runner names its own in EVAL_APP, EVAL_STATE and EVAL_LOGS.
exec python -m omni_evals.grade "$(dirname "$0")/grade.py"
