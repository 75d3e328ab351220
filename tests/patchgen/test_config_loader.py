"""What is read from a config without running it is what running it says; what cannot be read is refused."""

import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from omni_kit.isolation.confinement import can_confine
from omni_kit.isolation.limits import Limits
from omni_kit.patchgen import loader
from omni_kit.patchgen.fragment import NoSource, fragment_of
from omni_kit.patchgen.loader import CannotLoad, LoadedConfig, load_config, read_config, run_config
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.runner import run_here
from omni_kit.resources import resource_dir
from tests.patchgen.conftest import VEOMNI_CONFIGS

REFERENCES = sorted(resource_dir("reference_models").rglob("*_patch_gen_config.py"))
HEAD = """\
from veomni.patchgen.patch_spec import PatchConfig, PatchType, create_patch_from_external

config = PatchConfig(source_module="json", target_file="x.py")
"""


def said(loaded: LoadedConfig) -> dict[str, Any]:
    """Everything that a config says, with the text of each replacement."""
    libraries = Libraries(roots=(package_of(loaded.path)[0],))

    def text(replacement: Any) -> object:
        try:
            return replacement and fragment_of(replacement, loaded.registrations, libraries)
        except NoSource as why:
            return str(why)

    config = loaded.config
    plain = {n: v for n, v in vars(config).items() if n not in {"patches", "helpers", "positioned_helpers"}}
    patches = [{**vars(patch), "replacement": text(patch.replacement)} for patch in config.patches]
    helpers = [text(helper) for helper in config.helpers]
    placed = [{**vars(helper), "helper": text(helper.helper)} for helper in config.positioned_helpers]
    return {**plain, "patches": patches, "helpers": helpers, "placed": placed} | {
        "registrations": loaded.registrations,
        "frameworks": loaded.frameworks,
        "siblings": loaded.siblings.keys(),
    }


def write(folder: Path, text: str, name: str = "a_patch_gen_config.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(dedent(text), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("path", [*VEOMNI_CONFIGS, *REFERENCES], ids=lambda path: path.stem)
def test_real_configs_say_the_same(path: Path) -> None:
    libraries = Libraries(roots=(package_of(path)[0],))
    assert said(read_config(path.resolve(), libraries)) == said(run_here(path.resolve(), libraries))


SAME = {
    "decorators of every kind": """
        import functools, torch
        @config.override_method("A.f", description="why")
        @torch.no_grad()
        def f(self): ...
        @config.add_helper
        @functools.lru_cache(maxsize=1)
        def g(): ...
        @config.add_helper_after("A")
        class H(torch.nn.Module):
            x = 3
            def m(self): ...
        @config.replace_class("B")
        class B: ...
        @config.modify_init("C")
        def init(original, self):
            original(self)
        @config.replace_function(
            "k",
            description="k",
        )
        def k(): ...
    """,
    "a replacement that is given": """
        def f(self): ...
        class P:
            def m(self): ...
            @staticmethod
            def s(): ...
        config.override_method("A.f", replacement=f, name_map={"A": "B"}, inject=True)
        config.override_method("A.m", P.m)
        config.override_method("A.s", P.s)
        config.replace_class("A", lambda x: x)
        config.patches.append(create_patch_from_external("A", "json", "JSONDecoder", PatchType.METHOD_OVERRIDE))
    """,
    "imports, blocks and names": """
        import textwrap
        from inspect import cleandoc
        config.add_import("torch", names=["nn", "cuda"])
        config.add_import("torch.nn", alias="tnn", is_from_import=False)
        config.add_post_import_block(textwrap.dedent('''
            X = 1
        '''))
        config.add_post_import_block(cleandoc("  Y = 2"))
        NAMES = ("a", "b")
        config.drop_import_names(*NAMES, *(f"{n}{i}" for n in NAMES for i in range(2) if i != 1))
        config.exclude_from_output("C", *["D"] * 0)
        config.exclude += ["E"]
        config.exclude.remove("E") if False else None
        config.drop_imported_names |= {"z"}
        config.strict = not config.optional
        config.exclude.append("%s.%d%%" % ("F", 3))
        config.exclude.extend(["-" * 3, 7 % 4] [:1])
        config.description = "%s" if not NAMES else ", ".join(sorted({"y", "x"})) + "!".upper()
    """,
    "a loop and a condition": """
        TABLE = {"A.f": None, "B.f": "other"}
        def f(self): ...
        for target, text in TABLE.items():
            if text is None or target.endswith("g"):
                config.override_method(target, replacement=f)
                continue
            config.override_method(target, replacement=f, description=text)
        if __name__ == "__main__":
            raise SystemExit(1)
        elif len(TABLE) == 2 and "A.f" in TABLE:
            config.exclude.append("D")
    """,
    "a function that registers": """
        from functools import partial
        def over(method, cls="A", *, more=()):
            target = "{}.{}".format(cls, method)
            def register(function):
                for extra in (target, *more):
                    config.override_method(extra)(function)
                return function
            return register
        @over("f", more=["A.g"])
        def f(self): ...
        new = partial(config.override_method, inject=True)
        @new("A.n")
        def n(self): ...
        def everything(c, /, *names, **options):
            return [c.exclude_from_output(n) for n in names] and options.get("x", 3)
        assert everything(config, "P", "Q", x=4) == 4
    """,
    "a copy": """
        import copy
        config.exclude.append("A")
        @config.override_method("A.f")
        def f(self): ...
        old, config = config, copy.deepcopy(config)
        old.exclude.append("B")
        config.adopt_init_modifications(old)
    """,
    "an import that is tried": """
        try:
            from .nowhere import x
        except ImportError:
            config.exclude.append("none")
        try:
            import flash_attn
        except ImportError:
            config.exclude.append("never")
        else:
            config.exclude.append("some")
        from typing import TYPE_CHECKING, Optional
        if TYPE_CHECKING:
            config.exclude.append("never")
        Alias = Optional["A"]
        x: int = 3
        x, (y, z) = x, [x, x]
        x += 1
        del y
        config.exclude.append(str(x))
    """,
}


@pytest.mark.parametrize("name", SAME)
def test_written_in_other_ways_they_say_the_same(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + dedent(SAME[name]))
    assert said(read_config(path, Libraries())) == said(run_here(path, Libraries()))


@pytest.mark.parametrize(
    "layer",
    [
        "from .gpu_patch_gen_config import config, f\nconfig.target_file = 'y.py'",
        "from pkg.model.gpu_patch_gen_config import *\nconfig.override_method('A.g', replacement=f)",
        "from . import gpu_patch_gen_config as gpu\nconfig = gpu.config\nconfig.override_method('A.g', gpu.f)",
        "import pkg.model.gpu_patch_gen_config as gpu\nconfig = gpu.config",
        "from .gpu_patch_gen_config import config\nfrom .names import NAMES\nconfig.exclude_from_output(*NAMES)",
        "from .gpu_patch_gen_config import config\nfrom .names import h\nconfig.add_helper(h)",
    ],
)
def test_layers_say_the_same(layer: str, tmp_path: Path) -> None:
    model = tmp_path / "pkg" / "model"
    for folder in (model.parent, model):
        write(folder, "raise RuntimeError\n", "__init__.py")
    write(model, HEAD + "@config.override_method('A.f')\ndef f(self): ...\n", "gpu_patch_gen_config.py")
    write(model, "NAMES = ['A', 'B']\ndef h(): ...\n", "names.py")
    path = write(model, f"{layer}\n", "npu_patch_gen_config.py")
    assert said(read_config(path, Libraries())) == said(run_here(path, Libraries()))


def test_of_a_module_beside_it_that_cannot_be_read_the_definitions_are_there(tmp_path: Path) -> None:
    write(tmp_path, "import os\nprint(open(os.devnull).read())\ndef h(): ...\n", "helpers.py")
    path = write(tmp_path, f"{HEAD}from helpers import h\nconfig.add_helper(h)\n")
    assert said(read_config(path, Libraries()))["helpers"] == said(run_here(path, Libraries()))["helpers"]


REFUSED = {
    "open('planted', 'w').write('x')": "it uses open",
    "__import__('os').system('touch planted')": "it uses __import__",
    "[].__class__.__base__.__subclasses__()": "it uses __class__ of list",
    "config.__init__('os', 'y.py')": "it uses __init__ of PatchConfig",
    "config._register": "it uses _register of PatchConfig",
    "import veomni.patchgen.patch_spec as s\ns.sys.exit(0)": "it uses sys, which the DSL does not have",
    "raise SystemExit(0)": "raises SystemExit(0)",
    "while True: pass": "does not terminate within the limit",
    "for i in range(1000):\n    for j in range(1000): pass": "does not terminate within the limit",
    "def f(): return f()\nf()": "calls f without end",
    "x = 'a'\nfor i in range(100): x = x + x": "creates a very large value",
    "x = [1]\nfor i in range(100): x.extend(x)": "creates a very large value",
    "x = 10**10**10": "creates a very large number",
    "x = 2\nfor i in range(100): x = x * x": "creates a very large number",
    "'a'.ljust(10**12)": "it uses ljust of str",
    "x = 'a' * 1000000": "creates a very large value",
    "'%999999999d' % 1": "performs an unsupported computation",
    "'{:9999999999}'.format(1)": "uses a format field other than a name",
    "f'{1:9999999999}'": "uses a format field other than a name",
    "range(10000000)": "counts very far",
    "import functools\nfunctools.reduce(config.override_method, [])": "passes the config to functools.reduce",
    "import torch\nif torch.cuda.is_available(): config.exclude.append('A')": "depends on torch.cuda.is_available()",
    "import names\nconfig.exclude_from_output(names.NAME)": "takes a post-import block or a name to leave out",
    "import names\nconfig.target_file = names.FILE": "takes target_file",
    "import names\nconfig.exclude = names.NAMES": "replaces a list",
    "class A: ...\nA()": "calls A",
    "assert config.strict": "fails an assertion",
    "config.override_method()": "ends in TypeError",
    "config.nothing": "uses nothing of PatchConfig",
    "del config": "no PatchConfig named 'config'",
    "setattr(config, 'strict', True)": "uses setattr",
    "import sys\nsys.modules[__name__]\nglobals()['config']": "uses globals",
    "eval('config')": "uses eval",
    "x = {}\nfor i in range(60): x = {'a': x, 'b': x}\nx == x": "compares or collects",
    "with open('x'): pass": "enters open",
    "x = lambda: (yield)\nx()": "unsupported argument (Yield)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_told_is_refused_with_its_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, f"{HEAD}{text}\n")
    started = time.perf_counter()
    with pytest.raises(CannotLoad) as caught:
        read_config(path, Libraries())
    assert REFUSED[text] in caught.value.message
    assert "\n" not in caught.value.message
    assert time.perf_counter() - started < 5
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_nothing_around_it_runs_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planted = "open('planted', 'w').write('x')\n"
    for name in ("torch.py", "helpers.py", "b_patch_gen_config.py"):
        write(tmp_path, planted + HEAD + "def h(): ...\n", name)
    for line in ("import torch", "from helpers import h", "import b_patch_gen_config"):
        path = write(tmp_path, f"{line}\n{HEAD}")
        with pytest.raises(CannotLoad, match="it uses open"):
            load_config(path, Libraries(), run=False)
    assert not (tmp_path / "planted").exists()


def test_a_circle_of_configs_ends(tmp_path: Path) -> None:
    write(tmp_path, "from a_patch_gen_config import config\n", "b_patch_gen_config.py")
    with pytest.raises(CannotLoad, match="does not define"):
        read_config(write(tmp_path, f"from b_patch_gen_config import config\n{HEAD}"), Libraries())


def test_one_that_cannot_be_read_is_run_for_whoever_allows_it(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}exec(\"config.exclude.append('A')\")\n")
    loaded = load_config(path, Libraries())
    assert loaded.config.exclude == ["A"]
    assert [note.partition(":")[0] for note in loaded.notes] == ["a_patch_gen_config.py ran, in a confined process"]
    with pytest.raises(CannotLoad) as caught:
        load_config(path, Libraries(), run=False)
    assert (caught.value.code, caught.value.origin and caught.value.origin.line) == ("unreadable", 4)


@pytest.mark.parametrize("name", SAME)
def test_it_comes_whole_out_of_the_process_that_ran_it(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + dedent(SAME[name]))
    assert said(run_config(path, Libraries())) == said(read_config(path, Libraries()))


def test_layers_come_whole_out_of_it_too(tmp_path: Path) -> None:
    block = "config.add_post_import_block('X = 1')\n"
    write(tmp_path, f"{HEAD}{block}@config.override_method('A.f')\ndef f(self): ...\n", "gpu_patch_gen_config.py")
    path = write(tmp_path, f"import copy, gpu_patch_gen_config as gpu\nconfig = copy.deepcopy(gpu.config)\n{block}")
    ran = run_config(path, Libraries())
    assert said(ran) == said(read_config(path, Libraries()))
    assert ran.siblings[path] is ran.config
    assert len({one.line for one in ran.config.block_origins.values()}) == 1


ESCAPES = {
    "a file beside it": "open({here!r} + '/planted', 'w')",
    "a file in the home": "open(os.path.expanduser('~/.omni-kit-planted'), 'w')",
    "itself": "open(__file__, 'a')",
    "an empty file": "os.mknod({here!r} + '/planted')",
    "a directory": "os.mkdir({here!r} + '/planted')",
    "a rename": "os.rename(__file__, __file__ + '.py')",
    "a directory of another": "open({here!r} + '/sub/planted', 'w')",
    "a program": "subprocess.run(['/bin/sh', '-c', 'echo x > {here}/planted'], check=True)",
    "a link": "os.symlink('/etc/passwd', {here!r} + '/planted')",
    "the gate": "os.remove(omni_kit.patchgen.spec.__file__)",
}


@pytest.mark.skipif(not can_confine(), reason="the system cannot confine")
@pytest.mark.parametrize("name", ESCAPES)
def test_a_config_that_runs_can_write_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    act = ESCAPES[name].format(here=str(tmp_path))
    path = write(
        tmp_path, f"{HEAD}import os, subprocess, omni_kit.patchgen.spec\n@(lambda f: ({act}, f)[1])\ndef f(): ...\n"
    )
    before = sorted(tmp_path.rglob("*")), path.read_bytes()
    with pytest.raises(CannotLoad, match="Error"):
        run_config(path, Libraries())
    assert (sorted(tmp_path.rglob("*")), path.read_bytes()) == before
    assert not Path("~/.omni-kit-planted").expanduser().exists()


BOMBS = {
    "a number": ("9**9**9**9", "did not", 1.0),
    "a loop": ("exec('while True: pass')", "did not", 1.0),
    "a list": ("x = [None]\nexec('while True: x += [*x[:1 << 20]]')", "memory", 5.0),
    "processes": ("import os\nexec('while True: os.fork() or os.pause()')", "cannot be loaded", 5.0),
    "a death": ("import os\nos.kill(os.getpid(), 9)", "SIGKILL", 5.0),
    "an exit": ("import os\nos._exit(0)", "cannot be loaded", 5.0),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_config_that_runs_has_limits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    act, why, seconds = BOMBS[name]
    monkeypatch.setattr(loader, "_TIMEOUT", seconds)
    monkeypatch.setattr(loader, "_LIMITS", Limits(memory=300 << 20, processes=20, disk=1 << 20))
    with pytest.raises(CannotLoad) as caught:
        run_config(write(tmp_path, f"{HEAD}{act}\n"), Libraries())
    assert why in caught.value.message
    assert "\n" not in caught.value.message


FORGE = """
import json, os, sys

def answer(result):
    frame = sys._getframe()
    while "replies" not in frame.f_locals:
        frame = frame.f_back
    values = frame.f_locals
    values["replies"].write(json.dumps({"token": values["token"], "result": result}) + "\\n")
    values["replies"].flush()
    os._exit(0)

"""
FORGED = {
    "no reply": "{}",
    "a config that is a list": "{'config': [], 'siblings': {'is': 'dict', 'items': []}, 'own': []}",
    "an unknown record": "{'config': {'is': 'Path', 'path': 'x'}, 'siblings': {}, 'own': []}",
    "a patch of nothing": "{'config': {'is': 'PatchConfig', 'source_module': 'json', 'patches': [{'is': 'Patch'}]}}",
    "patches that are a number": "{'config': {'is': 'PatchConfig', 'source_module': 'json', 'patches': 3}}",
    "a name that is a list": "{'config': {'is': 'PatchConfig', 'source_module': []}, 'siblings': {}, 'own': []}",
    "an error that is a number": "{'error': 3, 'origin': None}",
    "an error somewhere else": "{'error': ['a', 'b'], 'origin': 'here'}",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_reply_that_a_config_forges_is_its_failure(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}{FORGE}answer({FORGED[name]})\n")
    with pytest.raises(CannotLoad) as caught:
        run_config(path, Libraries())
    assert "\n" not in caught.value.message
