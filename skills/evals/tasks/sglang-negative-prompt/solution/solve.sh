#!/bin/bash
set -e
cd "${EVAL_APP:-/app}"
omni-kit reference copy sglang_diffusion/wan_t2v --into fresh
cp fresh/wan_t2v/pipeline_config.py plugins/wan_t2v/pipeline_config.py
rm -r fresh
