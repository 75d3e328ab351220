"""What runs SGLang itself: in processes of its own, in the environment that has it."""
