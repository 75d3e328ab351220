"""Compare code: a function with the one that it was copied from, or with its clones in other packages.

`fingerprint` tells equal code, `normalize` gives it one spelling, `align` pairs the statements of two functions,
`edits` and `changes` say how they differ, `valueflow` compares what they compute, `clones` finds functions that are
alike. `repeats` and `branches` compare statements within one function.
"""
