"""Functions that the package has kernels for."""
