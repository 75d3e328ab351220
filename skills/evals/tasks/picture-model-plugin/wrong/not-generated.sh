#!/bin/bash
set -e
cd "${EVAL_APP:-/app}"
omni-kit new-model osprey --from checkpoints/osprey --target veomni --into plugins
