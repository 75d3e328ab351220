"""Arrows between rooms point one way, no two modules import each other, and everything public is explained."""

import ast
from pathlib import Path

import pytest

from .imports import imports, modules, room_of

# From the bottom up: a room may use those of lower tiers, and those of its own only where no circle comes of it.
TIERS = (
    (
        "omni_kit",
        "omni_kit.plurals",
        "omni_kit.errors",
        "omni_kit.resources",
        "omni_kit.documents",
        "omni_kit.files",
        "omni_kit.authenticated_cache",
        "omni_kit.record",
        "omni_kit.renamed",
        "omni_kit.termination",
    ),
    ("omni_kit.diagnostics", "omni_kit.isolation", "omni_kit.pysource", "omni_kit.standins"),
    ("omni_kit.upstream", "omni_kit.output", "omni_kit.formatting"),
    ("omni_kit.layout", "omni_kit.patchgen", "omni_kit.skillpack"),
    ("omni_kit.toys", "omni_kit.convert"),
    ("omni_kit.targets",),
    (
        "omni_kit.scaffold",
        "omni_kit.parity",
        "omni_kit.doctor",
        "omni_kit.examples",
        "omni_kit.nearest_references",
        "omni_kit.inspection",
    ),
    (
        "omni_checkers",
        "omni_checkers.codediff",
        "omni_checkers.coverage",
        "omni_checkers.diffusers",
        "omni_checkers.engine",
        "omni_checkers.sglang_diffusion",
        "omni_checkers.skills",
        "omni_checkers.symbolic",
        "omni_checkers.veomni",
    ),
    ("omni_kit.coverage", "omni_kit.demo", "omni_kit.kernels", "omni_kit.upgrade", "omni_kit.verify"),
    ("omni_kit.cli", "omni_kit.__main__"),
)
HEIGHT = {room: height for height, tier in enumerate(TIERS) for room in tier}


def test_every_room_has_its_place() -> None:
    assert {room_of(module) for module in modules()} <= set(HEIGHT)


def test_no_arrow_points_up() -> None:
    wrong = {
        f"{module} -> {other}"
        for module, others in imports().items()
        for other in others
        if HEIGHT[room_of(other)] > HEIGHT[room_of(module)]
    }
    assert wrong == set()


def test_rooms_of_one_tier_do_not_need_each_other() -> None:
    """Parity and scaffold stand beside each other, and so do rules of different targets."""
    pairs = {(room_of(module), room_of(other)) for module, others in imports().items() for other in others}
    circles = {(one, other) for one, other in pairs if one < other and (other, one) in pairs}
    assert circles == set()


def test_no_two_modules_import_each_other() -> None:
    assert [sorted(circle) for circle in _circles()] == []


def _circles() -> list[set[str]]:
    """The strongly connected components of more than one module."""
    graph = imports()
    reach: dict[str, set[str]] = {}
    for module in graph:
        seen: set[str] = set()
        todo = list(graph[module])
        while todo:
            if (name := todo.pop()) not in seen:
                seen.add(name)
                todo += graph[name]
        reach[module] = seen
    found: list[set[str]] = []
    for module, seen in reach.items():
        circle = {other for other in seen if module in reach[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


@pytest.mark.parametrize("name", ["torch", "transformers", "diffusers"])
def test_rules_and_commands_import_no_heavy_library(name: str) -> None:
    """Not even inside a function: what needs one runs in a process of its own."""
    light = [
        m for m in modules() if m.startswith(("omni_checkers.", "omni_kit.cli", "omni_kit.upstream", "omni_kit.layout"))
    ]
    apart = ("omni_checkers.veomni.runs.", "omni_checkers.diffusers.runs.", "omni_kit.layout.loader_worker")
    heavy = [module for module in light if not module.startswith(apart) and _imports(modules()[module], name)]
    assert heavy == []


def _imports(file: Path, name: str) -> bool:
    text = file.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text))) if name in text else []
    froms = (node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level)
    plain = (alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names)
    return any(module.partition(".")[0] == name for module in (*froms, *plain))


# Its functions are torch's, under torch's names, and torch explains them.
EXPLAINED_ELSEWHERE = {"omni_kit.upstream.torch.functions"}


def test_everything_public_is_explained() -> None:
    missing = [
        f"{module}:{node.lineno} {node.name}"
        for module, file in modules().items()
        if module not in EXPLAINED_ELSEWHERE
        for node in _public(ast.parse(file.read_text(encoding="utf-8")))
        if not ast.get_docstring(node)
    ]
    assert missing == []


def _public(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef | ast.ClassDef]:
    """Classes, functions, methods and properties without an underscore; those of private classes are private.

    A rule is explained by its class: `check` is what the engine calls.
    """
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for item in node.body:
        if not isinstance(item, (ast.FunctionDef, ast.ClassDef)) or item.name.startswith("_"):
            continue
        if not (isinstance(node, ast.ClassDef) and item.name == "check"):
            found.append(item)
        if isinstance(item, ast.ClassDef):
            found += _public(item)
    return found
