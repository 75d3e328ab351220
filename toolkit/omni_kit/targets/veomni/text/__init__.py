"""Models of transformers in VeOmni: what a scaffold of one consists of."""
