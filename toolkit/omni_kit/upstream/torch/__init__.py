"""Operations of torch's functions and layers on NumPy arrays: small tensor code is evaluated without torch."""
