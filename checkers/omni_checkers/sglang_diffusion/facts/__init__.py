"""What is known of one pipeline in SGLang-diffusion, read from its files and from SGLang's."""
