"""How the authors sample, for a comparison with the pipeline; it runs only next to their code.

Noise is [pictures, ...], an embedded text [pictures, tokens, width]; `scale` is that of guidance. Returns latents.
"""


def sample(model, noise, steps, text, against, scale):
    from lumen.sampling import sample as sampled

    return sampled(model=model, noise=noise, context=text, empty=against, steps=steps, cfg=scale)
