"""Messages of torch about an input whose width does not fit a layer."""

import re

WIDTHS = (
    re.compile(r"cannot be multiplied \(\d+x(?P<came>\d+) and (?P<wants>\d+)x\d+\)"),
    re.compile(r"to have (?P<wants>\d+) channels, but got (?P<came>\d+) channels"),
    re.compile(r"normalized_shape=\[(?P<wants>\d+)\].*size\[(?:\d+, )*(?P<came>\d+)\]"),
)
"""Of linear layers, convolutions and norms: the width of the input, and the width that the weights have."""

ADDED = re.compile(r"size of tensor a \((?P<came>\d+)\) must match the size of tensor b \((?P<wants>\d+)\)")
"""Of two tensors that are added or multiplied: which of them came is not known."""

EXPANDED = re.compile(r"expanded size of the tensor \((?P<wants>\d+)\) must match the existing size \((?P<came>\d+)\)")
"""Of a tensor that is expanded: the size that it has, and the one that it gets."""

LENGTHS = re.compile(r"at non-singleton dimension [34]$")
"""Of two media with other rows or columns: their size does not fit, whatever their channels."""

VIEWED = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
"""Of a tensor that does not have as many numbers as a shape, of which one size may be open."""
