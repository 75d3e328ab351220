"""Pass thresholds of the stages. No option, variable or file of the integration can change them.

What tensors may differ by is not among them: the levels measure it on upstream itself, whose weights they move to the
next number (see `omni_kit.parity.compare`).
"""

# Of the faults that are planted, none may pass unnoticed: one that does names a hole in the comparison.
MISSED = 0
# Of those noticed, so many must be blamed on the right module; the rest are faults whose effect shows elsewhere first.
LOCATED = 0.9
# The findings that fail: a warning names a consequence, too.
SEVERITIES = frozenset({"error", "warning"})
