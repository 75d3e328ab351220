"""Programs that need VeOmni imported, as forks of the process of which candidates of comparisons are forks."""

import tempfile
from pathlib import Path

from omni_kit.isolation.requests import run_worker
from omni_kit.parity.processes.workers import preloaded
from omni_kit.targets.sides import DIFFUSERS, TRANSFORMERS

ROOT = Path(__file__).parents[1]
_FRAMEWORK = "omni_kit.targets.veomni.runtime.framework"
_LANGUAGE = (preloaded(TRANSFORMERS), (_FRAMEWORK, "omni_kit.targets.veomni.runtime.side"))
_DIFFUSION = (preloaded(DIFFUSERS), (_FRAMEWORK, "omni_kit.targets.veomni.dit.side"))
_STARTED = """\
import contextlib, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.argv[1:] = {arguments!r}
sys.path.insert(0, {root!r})
with open({said!r}, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
    exec({program!r}, {{"__name__": "__main__"}})
"""


def run_forked(program: str, *arguments: object, diffusion: bool = False) -> str:
    """Return what a program in Python prints; it raises in the caller what it raises.

    Args:
        diffusion: diffusers is imported, too.
    """
    modules, beyond = _DIFFUSION if diffusion else _LANGUAGE
    with tempfile.TemporaryDirectory() as place:
        said = Path(place, "said.txt")
        code = _STARTED.format(arguments=[*map(str, arguments)], root=str(ROOT), said=str(said), program=program)
        run_worker("builtins:exec", code, timeout=600.0, modules=modules, beyond=beyond, confined=False)
        return said.read_text(encoding="utf-8")


def run_module(name: str, *arguments: object, diffusion: bool = False) -> str:
    """Return what a module of the tests prints as the main program, as `run_forked` does."""
    code = f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=False)"
    return run_forked(code, *arguments, diffusion=diffusion)
