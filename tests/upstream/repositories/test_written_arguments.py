"""Arguments of samplers as the authors' code and configs write them."""

import ast
from pathlib import Path

from omni_kit.upstream.repositories.processes.class_members import constructor_arguments
from omni_kit.upstream.repositories.processes.written_arguments import (
    WrittenArguments,
    written_arguments,
    written_objects,
)
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sources import sources_of
from tests.upstream.repositories.test_authors_calls import NET

SAMPLER = """

class Diffusion:
    def __init__(self, betas, kind="eps"):
        self.betas, self.kind = betas, kind
"""
MAIN = """
import missing
from net import Diffusion

cfg = missing.settings


def make_betas(last, num_timesteps=1000):
    return list(range(num_timesteps))


def main():
    betas = make_betas(LAST, cfg.num_timesteps)
    return Diffusion(betas, kind=cfg.kind)
"""


def found(place: Path, last: str = "0.02", **files: str) -> WrittenArguments:
    (place / "net.py").write_text(NET + SAMPLER, encoding="utf-8")
    for name, text in {"main.py": MAIN.replace("LAST", last), **files}.items():
        (place / name).write_text(text, encoding="utf-8")
    reference = find_reference(f"{place / 'net.py'}::Net")
    sources = [*sources_of(reference)]
    cls = reference.cls.source.classes["Diffusion"]
    calls = [(source, node) for source in sources for node in ast.walk(source.tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "Diffusion"]  # fmt: skip
    return written_arguments(reference, cls, calls, constructor_arguments(reference.cls.source, cls))


SETTINGS = {"settings.py": "import missing\ncfg = missing.settings\ncfg.num_timesteps = 400\ncfg.kind = 'v'\n"}


def test_a_function_of_theirs_is_called_with_the_values_of_their_settings(tmp_path: Path) -> None:
    written = found(tmp_path, **SETTINGS)
    assert written.said == {"betas": "make_betas(last=0.02, num_timesteps=400)", "kind": "'v'"}
    assert written.counted == {"betas": "make_betas(last=0.02, num_timesteps=steps)", "kind": "'v'"}
    assert written.defined == (("main", "make_betas"),)


def test_what_no_code_says_is_left_alone(tmp_path: Path) -> None:
    assert found(tmp_path, last="missing.last", **SETTINGS) == WrittenArguments()
    two = {**SETTINGS, "other.py": "import missing\ncfg = missing.settings\ncfg.num_timesteps = 100\n"}
    assert found(tmp_path, **two) == WrittenArguments()


def test_a_config_that_names_the_class_by_its_type_says_its_arguments(tmp_path: Path) -> None:
    """The one that names the model, too, comes first; others that differ are named."""
    config = "Net: {type: Net, dim: 8}\nDiffusion: {type: Diffusion, betas: [0.1, 0.2], kind: v, more: 1}\n"
    other = "Diffusion: {type: Diffusion, betas: [0.1, 0.3]}\n"
    written = found(tmp_path, **{"main.py": "", "b.yaml": config, "a.yaml": other})
    assert written.said == {"betas": "[0.1, 0.2]", "kind": "'v'"}
    assert written.differ == ()
    written = found(tmp_path, **{"main.py": "", "b.yaml": config, "a.yaml": config.replace("0.2", "0.3")})
    assert [one.rpartition("/")[2] for one in written.differ] == ["b.yaml"]
    nested = config.replace("kind: v", "kind: {_target_: main.Kind}")
    assert found(tmp_path, **{"a.yaml": "", "b.yaml": nested}) == WrittenArguments()


PARTS = """
class Schedule:
    def __init__(self, last=0.02, **more):
        self.last = last


def join(one, other):
    return one + other
"""
DESCRIBED = """
net: {class_path: net.Net}
sampler:
  class_path: net.Diffusion
  init_args:
    betas: {class_path: src.parts.Schedule, init_args: {last: 0.03}}
    kind: src.parts.join
"""


def test_what_a_config_names_is_made_or_passed(tmp_path: Path) -> None:
    """A class of theirs is an object of it, a function is that function; other texts are texts."""
    written = found(tmp_path, **{"main.py": "", "parts.py": PARTS, "a.yaml": DESCRIBED})
    assert written.said == {"betas": "Schedule(last=0.03)", "kind": "join"}
    assert written.imports == (("parts", "Schedule"), ("parts", "join"))
    written = found(tmp_path, **{"a.yaml": DESCRIBED.replace("src.parts.join", "src.others.join")})
    assert written.said["kind"] == "'src.others.join'"
    assert found(tmp_path, **{"a.yaml": DESCRIBED.replace("src.parts.Sch", "src.others.Sch")}) == WrittenArguments()


OBJECTS = """
import enum
from dataclasses import dataclass

from torch import nn


class Kind(enum.Enum):
    plain = 1


@dataclass
class Settings:
    num_timesteps: int
    kind: Kind = Kind.plain


class Any:
    def __init__(self, *args, **kwargs):
        pass


class Encoder(nn.Module):
    pass
"""


def test_an_object_of_theirs_is_made_as_they_make_it(tmp_path: Path) -> None:
    """A model or another module is none of these."""
    text = "from objects import *\nfrom net import Diffusion, Net\n\nsettings = Settings(500, kind=Kind.plain)\n"
    (tmp_path / "objects.py").write_text(OBJECTS, encoding="utf-8")
    (tmp_path / "main.py").write_text(
        f"{text}made = Diffusion(settings, Kind.plain, Net(), Encoder(), Any(), Any(3))\n"
    )
    init = "def __init__(self, settings, kind, model, encoder, some, other):"
    (tmp_path / "net.py").write_text(f"{NET}\n\nclass Diffusion:\n    {init}\n        pass\n", encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    cls = reference.cls.source.classes["Diffusion"]
    calls = [(source, node) for source in sources_of(reference) for node in ast.walk(source.tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "Diffusion"]  # fmt: skip
    found = written_objects(reference, calls, constructor_arguments(reference.cls.source, cls))
    settings = "Settings(num_timesteps=500, kind=Kind.plain)"
    assert found.said == {"settings": settings, "kind": "Kind.plain", "some": "Any()"}
    assert found.counted["settings"] == "Settings(num_timesteps=steps, kind=Kind.plain)"
    assert found.trained == 500
    assert {*found.imports} == {("objects", "Settings"), ("objects", "Kind"), ("objects", "Any")}
