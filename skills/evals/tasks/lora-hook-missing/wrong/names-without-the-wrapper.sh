#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
sed -i 's/"\*layers/"backbone.layers/' plugins/osprey/__init__.py
