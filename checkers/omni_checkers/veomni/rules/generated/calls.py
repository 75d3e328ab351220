"""VEO419: calls into VeOmni and transformers fit the signatures of their callees."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.symbolic import Module, Program
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.callees import spread
from omni_checkers.veomni.facts.libraries import Libraries

_PATCH = """\


config.add_import("veomni.distributed.sequence_parallel", names=["gather_outputs"])


@config.override_method("OlmoeMLP.forward", description="on the whole sequence")
def olmoe_mlp_forward(self, x):
    x = gather_outputs(x, {dim}=1, group=None)
    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
"""
_OWN = "from torch import nn\nfrom veomni.distributed.sequence_parallel import gather_outputs\n"


def _example(dim: str) -> dict[str, str]:
    return {GPU_CONFIG: patch_config(_PATCH.format(dim=dim)).replace("from torch import nn\n", _OWN)}


class LibraryCallsFit(Rule):
    """Call functions and classes of VeOmni and transformers with arguments that their signatures accept.

    The rule follows re-exports and derives the constructors of dataclasses. It checks only the named arguments of calls
    with `*args` or `**kwargs`.

    Why: the call raises TypeError: for a plan, a collator or a converter when training starts, for a device's branch
    when someone trains on that device.

    Fine when: the model targets another release than the installed one; then check with that one.
    """

    id = "VEO419"
    name = "library-calls-fit-signatures"
    target = "veomni"
    obligations = ("VEO-ENV-07", "VEO-PG-40")
    failure_modes = ("removed-upstream-import", "override-signature-drift")
    BAD = (_example("dim"),)
    GOOD = (_example("gather_dim"),)

    def check(self, files: dict[Path, File], program: Program, libraries: Libraries) -> Findings:
        for file in files.values():
            imported = dict(_imported(file, program))
            for call in file.nodes(ast.Call) if imported else ():
                if isinstance(call.func, ast.Name) and call.func.id in imported:
                    callee = libraries.callee(*imported[call.func.id])
                    given = (
                        _spread(file, call) if any(keyword.arg is None for keyword in call.keywords) else frozenset()
                    )
                    wrong = callee.misfit(call, given) if callee is not None else ""
                    if wrong:
                        module = imported[call.func.id][0]
                        message = f"{call.func.id}(...) does not fit that of {module}: {wrong}"
                        yield Finding(message, file.path, call.lineno, call.col_offset + 1)


def _spread(file: File, call: ast.Call) -> frozenset[str]:
    """Return the names that a call gives by `**`, of a dict that the innermost function around it writes out."""
    if all(keyword.arg for keyword in call.keywords):
        return frozenset()
    around = [function for function in file.nodes(ast.FunctionDef) if call in walked(function)]
    return spread(around[-1], call) if around else frozenset()


def _imported(file: File, program: Program) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local name -> (module, name), of names that one import alone binds in the whole file."""
    relative = file.path.relative_to(program.root).with_suffix("").parts
    parts = relative[:-1] if relative[-1] == "__init__" else relative
    module = Module(".".join([program.name, *parts]), file.path, relative[-1] == "__init__")
    found: dict[str, set[tuple[str, str]]] = {}
    for node in file.nodes(ast.ImportFrom):
        for alias in node.names:
            found.setdefault(alias.asname or alias.name, set()).add((program.absolute(module, node), alias.name))
    bound = {node.id for node in file.nodes(ast.Name) if isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in file.nodes(ast.FunctionDef)} | {node.name for node in file.nodes(ast.ClassDef)}
    bound |= {node.arg for node in file.nodes(ast.arg)}
    for name, places in found.items():
        if len(places) == 1 and name not in bound:
            yield name, places.pop()
