#!/bin/bash
set -e
cd "${EVAL_APP:-/app}"
omni-kit new-model sana_t2i --from SanaPipeline --target sglang-diffusion --force --into plugins
