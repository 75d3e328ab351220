#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
echo '# fixed' >> plugins/wan_t2v/pipeline.py
