"""Facts about one pipeline in SGLang-diffusion, read from its files and SGLang's."""
