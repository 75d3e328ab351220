#!/bin/bash
set -e
source "$(dirname "$0")/../solution/solve.sh"
python - << 'END'
import re
from pathlib import Path
file = Path("plugins/ember/transformer_ember.py")
plain = "nn.functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v))).transpose(1, 2)"
text, count = re.subn(r"dispatch_attention_fn\(q, k, v, [^()]*\)", plain, file.read_text())
assert count == 1
file.write_text(text)
END
