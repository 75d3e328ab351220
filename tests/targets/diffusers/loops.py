"""Loops over steps as authors write them, each to stand behind a small model."""

SIGMAS = """

def get_sigmas(steps, shift=3.0):
    s = torch.linspace(1, 0, steps + 1)
    return shift * s / (1 + (shift - 1) * s)

"""
HEUN = f"""{SIGMAS}
def to_d(x, sigma, v):
    return v


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    sigmas = get_sigmas(steps).to(noise.device)
    x = noise
    for i in range(len(sigmas) - 1):
        t = sigmas[i].expand(x.shape[0])
        cond = model(x, t, context)
        uncond = model(x, t, empty)
        d = to_d(x, sigmas[i], uncond + cfg * (cond - uncond))
        dt = sigmas[i + 1] - sigmas[i]
        if sigmas[i + 1] == 0:
            x = x + d * dt
        else:
            x_2 = x + d * dt
            t = sigmas[i + 1].expand(x.shape[0])
            c2, u2 = model(torch.cat([x_2, x_2]), torch.cat([t, t]), torch.cat([context, empty])).chunk(2)
            v2 = u2 + cfg * (c2 - u2)
            x = x + dt * (d + to_d(x_2, sigmas[i + 1], v2)) / 2
    return x
"""
TWO_STEPS = f"""{SIGMAS}
@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0, blend=1.5):
    sigmas = get_sigmas(steps, 2.0)
    old = None
    for now, after in zip(sigmas[:-1], sigmas[1:]):
        t = torch.full((noise.shape[0],), float(now))
        v = model(noise, t, context)
        if cfg > 1:
            neg = model(noise, t, empty)
            v = neg + cfg * (v - neg)
        d = v if old is None else blend * v - (blend - 1) * old
        noise = noise + (after - now) * d
        old = v
    return noise
"""
ALPHAS = """

def make_alphas(num=1000, start=0.0001, end=0.02):
    betas = torch.linspace(start**0.5, end**0.5, num) ** 2
    return torch.cumprod(1 - betas, dim=0)


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0, eta=0.0):
    alphas = make_alphas()
    ts = torch.linspace(999, 0, steps).round().long()
    x = noise
    for i, t in enumerate(ts):
        a = alphas[t]
        a_prev = alphas[ts[i + 1]] if i + 1 < steps else torch.ones(())
        tt = t.expand(len(x)) / 1000
        v = model(x, tt, context)
        u = model(x, tt, empty)
        v = u + cfg * (v - u)
        x0 = a.sqrt() * x - (1 - a).sqrt() * v
        eps = (1 - a).sqrt() * x + a.sqrt() * v
        sig = eta * ((1 - a_prev) / (1 - a)).sqrt() * (1 - a / a_prev).sqrt()
        x = a_prev.sqrt() * x0 + (1 - a_prev - sig**2).sqrt() * eps
        if eta > 0:
            x = x + sig * torch.randn_like(x)
    return x
"""
CHURNED = """

@torch.no_grad()
def sample(model, noise, num_steps, context, empty, cfg=4.0, s_churn=2.0, s_noise=1.003, sigma_max=1.0, rho=3):
    ramp = torch.linspace(0, 1, num_steps)
    sigmas = (sigma_max ** (1 / rho) + ramp * (0.02 ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
    sigmas = torch.cat([sigmas, sigmas.new_zeros([1])])
    x = noise * sigmas[0]
    s_in = x.new_ones([x.shape[0]])
    for i in range(len(sigmas) - 1):
        gamma = min(s_churn / (len(sigmas) - 1), 2**0.5 - 1)
        eps = torch.randn_like(x) * s_noise
        sigma_hat = sigmas[i] * (gamma + 1)
        if gamma > 0:
            x = x + eps * (sigma_hat**2 - sigmas[i] ** 2) ** 0.5
        c_in = 1 / (sigma_hat**2 + 1) ** 0.5
        out = model(torch.cat([x * c_in] * 2), torch.cat([sigma_hat.log() / 4 * s_in] * 2), torch.cat([empty, context]))
        u, c = out.chunk(2)
        denoised = u + (c - u) * cfg
        d = (x - denoised) / sigma_hat
        x = x + d * (sigmas[i + 1] - sigma_hat)
    return x
"""
# As the installed FlowMatchHeunDiscreteScheduler does it.
KNOWN = """

@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    ts = torch.linspace(1.0, 0.001, steps)
    ts = torch.cat([ts, torch.zeros(1)])
    x = noise
    for i in range(steps):
        now, after = ts[i], ts[i + 1]
        v = model(x, now.expand(len(x)), context)
        u = model(x, now.expand(len(x)), empty)
        v = u + cfg * (v - u)
        if i < steps - 1:
            mid = x + (after - now) * v
            v2 = model(mid, after.expand(len(x)), context)
            u2 = model(mid, after.expand(len(x)), empty)
            v = 0.5 * (v + u2 + cfg * (v2 - u2))
        x = x + (after - now) * v
    return x
"""
EULER = f"""{SIGMAS}
@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    sigmas = get_sigmas(steps)
    x = noise
    for now, after in zip(sigmas[:-1], sigmas[1:]):
        t = now.expand(x.shape[0])
        c = model(x, t, context)
        u = model(x, t, empty)
        x = x + (after - now) * (u + cfg * (c - u))
    return x
"""
WITHIN = """
from tqdm import tqdm
import math


def sigmas_karras(n, sigma_min=0.03, sigma_max=1.0, rho=7.0):
    ramp = torch.linspace(0, 1, n)
    s = (sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
    return torch.cat([s, torch.zeros(1)])


def sample(model, noise, num_steps, context, empty, guidance=4.0):
    with torch.no_grad():
        sigmas = sigmas_karras(num_steps, sigma_max=0.9)
        x = noise * sigmas[0]
        prev = None
        for i in tqdm(range(num_steps)):
            s = torch.full((len(x),), sigmas[i].item())
            den = x - sigmas[i] * (model(x, s, empty) * (1 - guidance) + guidance * model(x, s, context))
            t, t_next = -sigmas[i].log(), -sigmas[i + 1].log()
            h = t_next - t
            if prev is None or sigmas[i + 1] == 0:
                x = (sigmas[i + 1] / sigmas[i]) * x - torch.expm1(-h) * den
            else:
                r = (t + sigmas[i - 1].log()) / h
                d = (1 + 1 / (2 * r)) * den - (1 / (2 * r)) * prev
                x = (sigmas[i + 1] / sigmas[i]) * x - torch.expm1(-h) * d
            prev = den
    return x
"""
MIDPOINT = """
from itertools import pairwise


def bend(u, k):
    return u**k


@torch.inference_mode()
def generate(net, z, context, empty, n_steps=8, scale=4.0, k=1.3):
    grid = bend(torch.linspace(1, 0, n_steps + 1, device=z.device), k)
    for a, b in pairwise(grid):
        m = (a + b) / 2
        both = net(z.repeat(2, 1, 1, 1), a.repeat(2 * len(z)), torch.cat((context, empty)))
        c, u = both.chunk(2)
        f = u + scale * (c - u)
        zm = z + (m - a) * f
        c, u = net(zm.repeat(2, 1, 1, 1), m.repeat(2 * len(z)), torch.cat((context, empty))).chunk(2)
        z = z + (b - a) * (u + scale * (c - u))
    return z
"""
# As the installed schedulers do it that go along betas, each with settings of its own.
DDIM = """

def make_betas(n=1000, start=0.00085, end=0.012):
    return torch.linspace(start**0.5, end**0.5, n, dtype=torch.float64) ** 2


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    alphas = torch.cumprod(1.0 - make_betas(), dim=0).float()
    jump = 1000 // steps
    x = noise
    for t in range((steps - 1) * jump, -1, -jump):
        a = alphas[t]
        a_prev = alphas[t - jump] if t >= jump else torch.ones(())
        tt = torch.full((len(x),), float(t))
        v = model(x, tt, context)
        u = model(x, tt, empty)
        eps = u + cfg * (v - u)
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        x = a_prev.sqrt() * x0 + (1 - a_prev).sqrt() * eps
    return x
"""
DPM = """

def make_betas(n=1000, start=0.00085, end=0.012):
    return torch.linspace(start**0.5, end**0.5, n) ** 2


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    alphas = torch.cumprod(1.0 - make_betas(), dim=0)
    ts = torch.linspace(0, 999, steps + 1).round().long().flip(0)[:-1]
    x = noise
    old = None
    last = None
    for i in range(steps):
        t = ts[i]
        a, s = alphas[t].sqrt(), (1 - alphas[t]).sqrt()
        tt = torch.full((len(x),), float(t))
        eps = model(x, tt, empty) * (1 - cfg) + cfg * model(x, tt, context)
        x0 = (x - s * eps) / a
        if i == steps - 1:
            x = x0
        else:
            b, r = alphas[ts[i + 1]].sqrt(), (1 - alphas[ts[i + 1]]).sqrt()
            lam, lam_next = (a / s).log(), (b / r).log()
            h = lam_next - lam
            if old is None:
                x = r / s * x - b * torch.expm1(-h) * x0
            else:
                q = (lam - last) / h
                x = r / s * x - b * torch.expm1(-h) * (x0 + (x0 - old) / (2 * q))
        old = x0
        last = (a / s).log()
    return x
"""
ALONG_SIGMAS = """
import numpy as np


def get_sigmas(n=1000, start=0.00085, end=0.012):
    betas = np.linspace(start**0.5, end**0.5, n) ** 2
    alphas = np.cumprod(1.0 - betas)
    return ((1 - alphas) / alphas) ** 0.5


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    sigmas = get_sigmas()
    jump = 1000 // steps
    ts = [round(1000 - 1000 / steps * k) - 1 for k in range(steps)]
    x = noise * sigmas[ts[0]]
    for i in range(steps):
        s = sigmas[ts[i]]
        s_next = sigmas[ts[i + 1]] if i + 1 < steps else 0.0
        c_in = 1 / (s**2 + 1) ** 0.5
        tt = x.new_ones(len(x)) * ts[i]
        out = model(torch.cat([x * c_in] * 2), torch.cat([tt] * 2), torch.cat([empty, context]))
        u, c = out.chunk(2)
        eps = u + cfg * (c - u)
        x = x + eps * (s_next - s)
    return x
"""
# Loops of objects: in a method, of a class that is called, along betas, and with an object that a function makes.
METHODS = """

class Sampler:
    blend = 1.5

    def __init__(self, net, shift=3.0):
        super().__init__()
        self.net = net
        self.shift = shift
        self.old = None

    def sigmas(self, steps):
        s = torch.linspace(1, 0, steps + 1)
        return self.shift * s / (1 + (self.shift - 1) * s)

    def guided(self, x, t, context, empty, cfg):
        c = self.net(x, t, context)
        u = self.net(x, t, empty)
        return u + cfg * (c - u)

    def step(self, v, x, now, after):
        if self.old is None:
            d = v
        else:
            d = self.blend * v - (self.blend - 1) * self.old
        self.old = v
        return x + (after - now) * d

    @torch.no_grad()
    def sample(self, noise, steps, context, empty, cfg=4.0):
        sigmas = self.sigmas(steps)
        self.old = None
        x = noise
        for now, after in zip(sigmas[:-1], sigmas[1:]):
            t = now.expand(x.shape[0])
            v = self.guided(x, t, context, empty, cfg)
            x = self.step(v, x, now, after)
        return x
"""
CALLED = """
from dataclasses import dataclass


@dataclass
class Heun:
    shift: float = 2.0

    @property
    def less(self):
        return self.shift - 1

    def levels(self, n):
        u = torch.linspace(1, 0, n + 1)
        return self.shift * u / (1 + self.less * u)

    def slope(self, model, x, t, context, empty, cfg):
        c, u = model(torch.cat([x, x]), torch.cat([t, t]), torch.cat([context, empty])).chunk(2)
        return u + cfg * (c - u)

    def __call__(self, model, noise, steps, context, empty, cfg=4.0):
        with torch.no_grad():
            ts = self.levels(steps)
            x = noise
            for i in range(steps):
                now, after = ts[i], ts[i + 1]
                v = self.slope(model, x, now.expand(len(x)), context, empty, cfg)
                mid = x + (after - now) * v
                if i < steps - 1:
                    w = self.slope(model, mid, after.expand(len(x)), context, empty, cfg)
                    x = x + (after - now) * (v + w) / 2
                else:
                    x = mid
            return x
"""
DIFFUSION = """

class Diffusion:
    def __init__(self, model, n=1000, start=0.00085, end=0.012):
        self.model = model
        self.n = n
        betas = torch.linspace(start**0.5, end**0.5, n, dtype=torch.float64) ** 2
        self.alphas = torch.cumprod(1.0 - betas, dim=0).float()

    def x0_of(self, x, t, eps):
        a = self.alphas[t]
        return (x - (1 - a).sqrt() * eps) / a.sqrt()

    def ddim(self, x, t, jump, eps):
        a_prev = self.alphas[t - jump] if t >= jump else torch.ones(())
        return a_prev.sqrt() * self.x0_of(x, t, eps) + (1 - a_prev).sqrt() * eps

    @torch.no_grad()
    def sample(self, noise, steps, context, empty, cfg=4.0):
        jump = self.n // steps
        x = noise
        for t in range((steps - 1) * jump, -1, -jump):
            tt = torch.full((len(x),), float(t))
            v = self.model(x, tt, context)
            u = self.model(x, tt, empty)
            x = self.ddim(x, t, jump, u + cfg * (v - u))
        return x
"""
HELD = """

class FlowScheduler:
    def __init__(self, shift=3.0, trained=1000):
        self.shift = shift
        self.trained = trained
        self.sigmas = None
        self.timesteps = None

    def set_timesteps(self, steps):
        s = torch.linspace(1, 0, steps + 1)
        self.sigmas = self.shift * s / (1 + (self.shift - 1) * s)
        self.timesteps = self.sigmas[:-1]

    def step(self, answer, i, sample):
        prev = sample + (self.sigmas[i + 1] - self.sigmas[i]) * answer
        return prev


def sample(model, noise, steps, context, empty, cfg=4.0):
    sched = FlowScheduler(shift=2.5)
    sched.set_timesteps(steps)
    x = noise
    with torch.no_grad():
        for i, t in enumerate(sched.timesteps):
            tt = t.expand(len(x))
            v = model(x, tt, empty)
            v = v + cfg * (model(x, tt, context) - v)
            x = sched.step(v, i, x)
    return x
"""

PIPED = """

from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler


class DovePipeline(DiffusionPipeline):
    def __init__(self, net, scheduler: FlowMatchEulerDiscreteScheduler):
        super().__init__()
        self.register_modules(net=net, scheduler=scheduler)

    @property
    def do_classifier_free_guidance(self):
        return self._guidance_scale > 1

    @torch.no_grad()
    def __call__(self, prompt, num_inference_steps=30, guidance_scale=5.0, latents=None, callback=None):
        self._guidance_scale = guidance_scale
        empty, context, other, pooled = self.encode_prompt(prompt)
        if self.do_classifier_free_guidance:
            context = torch.cat([empty, context])
            pooled = torch.cat([other, pooled])
        self.scheduler.set_timesteps(num_inference_steps)
        latents = self.prepare_latents(latents)
        for i, t in enumerate(self.progress_bar(self.scheduler.timesteps)):
            both = torch.cat([latents] * 2) if self.do_classifier_free_guidance else latents
            answer = self.net(both, t.expand(both.shape[0]), context, pooled)
            if self.do_classifier_free_guidance:
                none, full = answer.chunk(2)
                answer = none + guidance_scale * (full - none)
            latents = self.scheduler.step(answer, t, latents, return_dict=False)[0]
            if callback is not None:
                callback(i, t, latents)
        return self.decode(latents)
"""
OWN_SCHEDULER = """

from diffusers import ConfigMixin, SchedulerMixin
from diffusers.configuration_utils import register_to_config


class DoveScheduler(SchedulerMixin, ConfigMixin):
    order = 1

    @register_to_config
    def __init__(self, num_train_timesteps=1000, shift=2.0):
        self.sigmas = None
        self.place = 0

    def set_timesteps(self, num_inference_steps, device=None):
        even = torch.linspace(1, 0, num_inference_steps + 1)
        self.sigmas = self.config.shift * even / (1 + (self.config.shift - 1) * even)
        self.timesteps = self.sigmas[:-1] * self.config.num_train_timesteps
        self.place = 0

    def step(self, model_output, timestep, sample, return_dict=True):
        sigmas = self.sigmas
        moved = sample + (sigmas[self.place + 1] - sigmas[self.place]) * model_output
        self.place += 1
        return (moved,)
"""
