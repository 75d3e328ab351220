"""Imports of every run: SGLang on the CPU, with stand-ins for accelerator packages."""

import importlib
import os

from omni_kit.targets.sglang_diffusion.runtime.stand_ins import register_stand_ins

os.environ.setdefault("SGLANG_DIFFUSION_PLATFORM_OVERRIDE", "cpu")
register_stand_ins()
importlib.import_module("sglang.multimodal_gen.registry")
