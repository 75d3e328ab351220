#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
sed -i 's|return 1.0 / deviation, mean|return 1.0 / deviation, -mean|' plugins/wan_t2v/pipeline_config.py
