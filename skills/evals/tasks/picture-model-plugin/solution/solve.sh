#!/bin/bash
set -e
cd "${EVAL_APP:-/app}"
omni-kit new-model osprey --from checkpoints/osprey --target veomni --into plugins
omni-kit patchgen run plugins/osprey/osprey_gpu_patch_gen_config.py
