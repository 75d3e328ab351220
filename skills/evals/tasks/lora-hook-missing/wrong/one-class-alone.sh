#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
sed -i 's/^        model_class._convert_lora_targets_to_parameters/        if model_class.__name__.endswith("Model"):\n            model_class._convert_lora_targets_to_parameters/' \
    plugins/osprey/__init__.py
