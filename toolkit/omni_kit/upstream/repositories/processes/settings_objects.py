"""Objects with settings that a sampler's constructor reads, as configs of the authors have them."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omni_kit.upstream.repositories.published import documented
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.sampler_step.members import Given

_NUMBER = re.compile(r"-?\d+(\.\d*)?e[-+]?\d+", re.IGNORECASE)  # a text in YAML 1.1, a number for those who wrote it
NAMESPACE = "namespace"
"""Variable of a call: what makes an object of attributes."""


def settings_objects(
    repository: Repository, given: Sequence[Given], inits: Iterable[ast.FunctionDef]
) -> Iterator[tuple[str, str]]:
    """Yield the arguments of which constructors read attributes that configs have, each with the expression for one:
    `namespace(solver='euler')`. Several configs must agree.
    """
    nodes = [node for init in inits for node in ast.walk(init)]
    for name in (one.arg for one, default in given if default is None):
        read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name}
        maybe = {str(node.args[1].value) for node in nodes if isinstance(node, ast.Call) and len(node.args) > 1
                 and ast.unparse(node.func) in ("hasattr", "getattr") and ast.unparse(node.args[0]) == name
                 and isinstance(node.args[1], ast.Constant)}  # fmt: skip
        needed = read - maybe
        found = [{key: _number(values[key]) for key in sorted(read | maybe) if key in values}
                 for values, _ in documented(repository, needed) if needed <= values.keys()]  # fmt: skip
        if needed and found and all(one == found[0] for one in found):
            yield name, f"{NAMESPACE}({', '.join(f'{key}={value!r}' for key, value in found[0].items())})"


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
