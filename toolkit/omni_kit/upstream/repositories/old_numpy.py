"""Names that NumPy had when authors wrote their code and has no longer, with what they meant."""

from collections.abc import Mapping

NUMPY = "numpy"
TYPES = ("bool", "complex", "float", "int", "object", "str")
"""Python's own types under the same names, removed in NumPy 1.24; some have come back as NumPy's."""
RENAMED: Mapping[str, str] = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "bool8": "bool_",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "in1d": "isin",
    "infty": "inf",
    "mat": "asmatrix",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "sometrue": "any",
    "trapz": "trapezoid",
    "unicode_": "str_",
}
"""Removed in NumPy 2 -> the name that both versions have."""
