"""Mistakes in a config that would only show later, or never: each is an error that names the place."""

import ast

import pytest

from omni_kit.patchgen import ConfigResult, run_config
from omni_kit.patchgen.diagnostics import Severity
from tests.patchgen.conftest import World

UPSTREAM = '''
    """What it is about."""
    from json import loads

    LIMIT = 3


    def used():
        return 1


    class C:
        def m(self):
            return used()


    def f():
        return LIMIT
'''
BLOCKS = 'config.add_post_import_block("""\nX = 1\n""")\n\nconfig.add_post_import_block("""\n    Y = 1\n    {}\n""")\n'


def errors(result: ConfigResult) -> list[tuple[str, int]]:
    return [(found.code, found.line) for found in result.diagnostics if found.severity is Severity.error]


def test_excluding_what_kept_code_needs(world: World) -> None:
    assert errors(run_config(world(UPSTREAM, "config.exclude_from_output('used')\n")))[0][0] == "excluded-reference"
    replaced = "config.exclude_from_output('used')\n\n\n@config.override_method('C.m')\ndef m(self):\n    return 1\n"
    assert errors(run_config(world(UPSTREAM, replaced))) == []


@pytest.mark.parametrize("name", ["used", "loads", "LIMIT", "C"])
def test_a_helper_of_a_name_that_upstream_has(name: str, world: World) -> None:
    helper = f"@config.add_helper\ndef {name}():\n    return 2\n"
    assert errors(run_config(world(UPSTREAM, helper))) == [("import-collision", 5)]


@pytest.mark.parametrize(
    "helper",
    [
        "@config.add_helper\ndef fresh():\n    return 2\n",
        "config.drop_import_names('loads')\n\n\n@config.add_helper\ndef loads():\n    return 2\n",
        "config.exclude_from_output('LIMIT')\n\n\n@config.add_helper\ndef LIMIT():\n    return 2\n",
    ],
)
def test_a_helper_that_takes_nobodys_name(helper: str, world: World) -> None:
    assert errors(run_config(world(UPSTREAM, helper))) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("y = = 3", "line 3 of post-import block 2 is not Python: invalid syntax: y = = 3"),
        ("return 3", "line 3 of post-import block 2 is not Python: 'return' outside function: return 3"),
        ("z = (", "line 3 of post-import block 2 is not Python: '(' was never closed: z = ("),
    ],
)
def test_a_block_that_is_no_python_is_named_with_its_line(line: str, says: str, world: World) -> None:
    result = run_config(world(UPSTREAM, BLOCKS.format(line)))
    assert [found.message for found in result.diagnostics] == [says]
    assert errors(result) == [("invalid-python", 9)]
    assert errors(run_config(world(UPSTREAM, BLOCKS.format("z = 3")))) == []


@pytest.mark.parametrize("head", ["", "# a licence\n\n", "#!/usr/bin/python\n# -*- coding: utf-8 -*-\n"])
@pytest.mark.parametrize("more", ["", "config.drop_import_names('loads')\n", BLOCKS.format("Z = 1")])
def test_upstreams_docstring_stays_the_docstring(head: str, more: str, world: World) -> None:
    path = world(UPSTREAM, more + "@config.replace_function('f')\ndef f():\n    return 2\n")
    upstream = path.parent / "upstream_module.py"
    upstream.write_text(head + upstream.read_text(encoding="utf-8"), encoding="utf-8")
    assert ast.get_docstring(ast.parse(run_config(path).text)) == "What it is about."


PATCH = "\n\n@config.override_method('C.m')\ndef m(self):\n    return 2\n"


@pytest.mark.parametrize(
    "line", ["import no_such_package", "from no_such_package.deep import X", "import os, no_such.y"]
)
def test_a_config_that_imports_what_is_not_installed(line: str, world: World) -> None:
    ((code, at),) = errors(run_config(path := world(UPSTREAM, f"{line}\n{PATCH}")))
    assert code == "config-import"
    assert path.read_text().splitlines()[at - 1] == line


@pytest.mark.parametrize(
    "line",
    [
        "import json, math, _ssl",
        "import yaml",
        "from veomni.patchgen.patch_spec import PatchConfig",
        "import some_framework.patchgen.patch_spec",
        "try:\n    import no_such_package\nexcept ImportError:\n    pass",
        "if False:\n    import no_such_package",
    ],
)
def test_a_config_that_imports_what_is_installed(line: str, world: World) -> None:
    assert errors(run_config(world(UPSTREAM, f"{line}\n{PATCH}"))) == []


def test_a_missing_import_of_upstream_is_not_the_configs_mistake(world: World) -> None:
    upstream = "import no_such_accelerator\n\n\nclass C:\n    def m(self):\n        return 1\n"
    assert errors(run_config(world(upstream, f"import no_such_accelerator\n{PATCH}"))) == []
