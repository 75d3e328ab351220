#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
sed -i 's/(block_state.prompt_embeds, block_state.negative_prompt_embeds)/(block_state.negative_prompt_embeds, block_state.prompt_embeds)/' plugins/ltx_blocks/denoise.py
