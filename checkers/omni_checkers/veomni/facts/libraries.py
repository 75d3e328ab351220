"""Functions and classes imported from VeOmni and transformers, followed through re-exports."""

import ast
from dataclasses import dataclass

from omni_checkers.engine.facts import fact
from omni_checkers.symbolic import Program
from omni_checkers.veomni.facts.callees import Callee
from omni_checkers.veomni.facts.constants import package_program, veomni_package
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.model_dir import ModelDir

_HOPS = 5


@dataclass(frozen=True)
class Libraries:
    """The packages that a model directory imports from, and the directory itself.

    Attributes:
        roots: by the name that imports them.
    """

    roots: dict[str, Program]

    def program(self, module: str) -> Program | None:
        """Return the innermost known package that a module belongs to."""
        owners = [name for name in self.roots if module == name or module.startswith(f"{name}.")]
        return self.roots[max(owners, key=len)] if owners else None

    def definition(self, module_name: str, name: str, hops: int = _HOPS) -> ast.FunctionDef | ast.ClassDef | None:
        """Return the function or class that a name of a module means; None if it has several meanings, or is
        neither.
        """
        program = self.program(module_name)
        module = program.module(module_name) if program is not None else None
        if program is None or module is None or not module.path.is_file() or not hops:
            return None
        bound = program.bindings(module).get(name, [])
        match bound:
            case [ast.FunctionDef() | ast.ClassDef() as node]:
                return node
            case [ast.ImportFrom(names=names) as node]:
                said = next((alias.name for alias in names if (alias.asname or alias.name) == name), name)
                return self.definition(program.absolute(module, node), said, hops - 1)
        return None

    def callee(self, module: str, name: str) -> Callee | None:
        """Return the callee of an imported name; None if it is uncertain."""
        node = self.definition(module, name)
        if isinstance(node, ast.FunctionDef):
            return Callee(name, node, 0)
        if node is None:
            return None
        decorators = {(dotted(d.func if isinstance(d, ast.Call) else d) or "?") for d in node.decorator_list}
        own = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name in {"__init__", "__new__"}]
        if not decorators and len(own) == 1 and own[0].name == "__init__" and not node.keywords:
            return Callee(name, own[0], 1)
        if {item.rpartition(".")[2] for item in decorators} == {"dataclass"} and not node.bases and not own:
            return Callee(name, _made_by(node), 1)
        return None


@fact
def libraries(model_dir: ModelDir, program: Program, transformers: Library) -> Libraries:
    """Return the packages that the directory imports from."""
    roots = {"transformers": package_program(transformers.root, "transformers"), program.name: program}
    package = veomni_package(model_dir)
    if package is not None:
        roots["veomni"] = package_program(package, "veomni")
    return Libraries(roots)


def _made_by(node: ast.ClassDef) -> ast.FunctionDef:
    """Return the constructor that `dataclass` writes."""
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
    fields = [item for item in fields if "ClassVar" not in ast.unparse(item.annotation) and _in_constructor(item)]
    parameters = [ast.arg("self"), *(ast.arg(item.target.id) for item in fields if isinstance(item.target, ast.Name))]
    defaults = [item.value for item in fields if item.value is not None and not _without_default(item.value)]
    arguments = ast.arguments([], parameters, None, [], [], None, defaults)
    return ast.FunctionDef("__init__", arguments, [ast.Pass()], [], lineno=node.lineno)


def _field(value: ast.expr | None) -> dict[str | None, ast.expr] | None:
    """Return the keywords of `field(...)`; None for any other value."""
    if isinstance(value, ast.Call) and (dotted(value.func) or "").rpartition(".")[2] == "field":
        return {keyword.arg: keyword.value for keyword in value.keywords}
    return None


def _in_constructor(item: ast.AnnAssign) -> bool:
    said = (_field(item.value) or {}).get("init")
    return not (isinstance(said, ast.Constant) and said.value is False)


def _without_default(value: ast.expr) -> bool:
    given = _field(value)
    return given is not None and not {"default", "default_factory"} & set(given)
