"""What torch's functions and layers compute, on NumPy arrays: small tensor code is evaluated without torch."""
