"""What only a run can tell: configs constructed and callbacks called next to SGLang."""
