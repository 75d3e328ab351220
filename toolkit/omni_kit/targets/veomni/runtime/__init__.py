"""VeOmni at run time: building, feeding, kernels, and training in several processes. Imports torch."""
