import torch


def get_sigmas(steps, shift=3.0):
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    return shift * sigmas / (1.0 + (shift - 1.0) * sigmas)


@torch.no_grad()
def sample(model, noise, context, empty, steps=28, cfg=4.0):
    x = noise
    sigmas = get_sigmas(steps).to(noise.device)
    for now, after in zip(sigmas[:-1], sigmas[1:]):
        t = now.expand(x.shape[0])
        cond = model(x, t, context)
        uncond = model(x, t, empty)
        v = uncond + cfg * (cond - uncond)
        x = x + (after - now) * v
    return x
