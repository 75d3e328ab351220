"""Code that runs SGLang itself, in processes of its own and in the environment that has it."""
