"""Rules about imports: VEO407."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.symbolic import Module, Program
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.libraries import Libraries

_PATCH = """\


config.add_import("transformers.activations", names=["{name}"])


@config.override_method("OlmoeMLP.forward", description="the activation by name")
def olmoe_mlp_forward(self, x):
    return self.down_proj((self.act_fn or {name})(self.gate_proj(x)) * self.up_proj(x))
"""


def _example(name: str) -> dict[str, str]:
    """Return a patch config that imports a name, and says that the generated file does so, too."""
    own = f"from torch import nn\nfrom transformers.activations import {name}\n"
    return {GPU_CONFIG: patch_config(_PATCH.format(name=name)).replace("from torch import nn\n", own)}


_OPTIONAL = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class ImportsExist(Rule):
    """Import only names that the module of transformers or VeOmni has.

    The rule ignores imports in a `try` that expects failure, type-checking imports, and packages that load lazily.

    Why: the first use of the package or model raises ImportError. Names change with each transformers release.

    Fine when: the model targets another release than the installed one; then check with that one.
    """

    id = "VEO407"
    name = "imported-names-exist"
    target = "veomni"
    obligations = (
        "VEO-ENV-07",
        "VEO-ENV-03",
        "VEO-PG-32",
        "VEO-SP-11",
    )
    failure_modes = ("removed-upstream-import",)
    BAD = (_example("fast_silu"),)
    GOOD = (_example("silu"),)

    def check(self, files: dict[Path, File], program: Program, libraries: Libraries) -> Findings:
        for file in files.values():
            for node, module in _imports(file, program):
                for name in missing_names(libraries, module, node):
                    yield Finding(f"{module} has no {name}", file.path, node.lineno)


def missing_names(libraries: Libraries, module_name: str, node: ast.ImportFrom) -> Iterator[str]:
    """Return the names of a from-import that its module certainly does not define."""
    program = libraries.program(module_name)
    if program is None:
        return
    module = program.module(module_name)
    if module is None:
        parent = program.module(module_name.rpartition(".")[0])
        if parent is not None and parent.is_package:
            yield module_name.rpartition(".")[2]
        return
    bound = program.bindings(module) if module.path.is_file() else {}
    if module.is_package and _lazy(program, module):
        return
    for alias in node.names:
        known = alias.name in bound or alias.name == "*" or program.module(f"{module_name}.{alias.name}") is not None
        if not known and "*" not in bound and "__getattr__" not in bound:
            yield alias.name


def _lazy(program: Program, module: Module) -> bool:
    """Return whether a package fills its names in by itself: a lazy module, or a table of what lies where."""
    tree = program.parse(module.path) if module.path.is_file() else None
    return tree is not None and any(
        isinstance(node, ast.Name) and node.id in {"_LazyModule", "define_import_structure", "globals"}
        for node in walked(tree)
    )


def _imports(file: File, program: Program) -> Iterator[tuple[ast.ImportFrom, str]]:
    """Yield the from-imports of a file that have to succeed, with their absolute modules."""
    relative = file.path.relative_to(program.root).with_suffix("").parts
    parts = relative[:-1] if relative[-1] == "__init__" else relative
    module = Module(".".join([program.name, *parts]), file.path, relative[-1] == "__init__")
    excused = [lines for node in (*file.nodes(ast.Try), *file.nodes(ast.If)) for lines in _excused(node)]
    spliced = "PatchConfig" in file.text  # the functions of a patch config run in the generated module
    for node in file.nodes(ast.ImportFrom):
        if not (spliced and node.col_offset) and not any(node.lineno in lines for lines in excused):
            yield node, program.absolute(module, node)


def _excused(node: ast.AST) -> Iterator[range]:
    """Yield lines that may fail: the body of a try that expects it, and what is for type checkers or one
    version only.
    """
    if isinstance(node, ast.Try):
        caught = [handler.type or ast.Name("Exception") for handler in node.handlers]
        if {name.id for expression in caught for name in walked(expression) if isinstance(name, ast.Name)} & _OPTIONAL:
            yield _lines(node.body)
            yield from (_lines(handler.body) for handler in node.handlers)
    elif isinstance(node, ast.If):
        yield _lines([*node.body, *node.orelse])


def _lines(body: list[ast.stmt]) -> range:
    return range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1)
