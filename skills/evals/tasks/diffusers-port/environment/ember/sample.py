"""Draws a picture from noise: Euler steps from time 1 to 0."""

import torch


@torch.no_grad()
def sample(model, latents, context, null_context, num_steps=28, guidance=4.5):
    times = torch.linspace(1, 0, num_steps + 1, device=latents.device)
    for i in range(num_steps):
        t = times[i].expand(latents.shape[0])
        velocity = model(latents, t, context)
        velocity = model(latents, t, null_context) * (1 - guidance) + velocity * guidance
        latents = latents + (times[i + 1] - times[i]) * velocity
    return latents
