"""Processes are started in `omni_kit.isolation` and nowhere else."""

import ast
import re
from collections.abc import Iterator

import pytest

from .imports import modules, room_of

# Modules that start processes, and what starts them in modules that do other things as well.
STARTERS = ("subprocess", "multiprocessing", "concurrent.futures.process", "pty", "_posixsubprocess", "pexpect", "sh",
            "torch.multiprocessing", "torch.distributed.launcher", "torch.distributed.elastic",
            "torch.distributed.run", "joblib", "loky", "psutil")  # fmt: skip
CALLS = {
    "os": ("fork", "forkpty", "exec", "spawn", "posix_spawn", "system", "popen", "startfile"),
    "posix": ("fork", "forkpty", "exec", "spawn", "posix_spawn", "system"),
    "asyncio": ("create_subprocess",),
    "asyncio.subprocess": ("create_subprocess",),
    "concurrent.futures": ("ProcessPoolExecutor",),
    "concurrent": ("futures.ProcessPoolExecutor",),
    "torch": ("multiprocessing", "distributed.launcher", "distributed.elastic", "distributed.run"),
    "torch.distributed": ("launcher", "elastic", "run"),
}
_MENTIONED = re.compile(rf"\b({'|'.join({name.partition('.')[0] for name in (*STARTERS, *CALLS)})})\b")
_DYNAMIC = (["import_module"], ["__import__"], ["getattr"])


def starts(text: str) -> list[int]:
    """Return the lines that import or name what starts a process, under any alias."""
    if not _MENTIONED.search(text):
        return []
    return sorted({line for line, name in _names(ast.parse(text)) if _is_starter(name)})


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what is imported, and what is reached through it, by full names."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = _parts(node)
            if parts and parts[0] in known:
                yield node.lineno, ".".join([known[parts[0]], *parts[1:]])
        elif isinstance(node, ast.Call) and _parts(node.func)[-1:] in _DYNAMIC:
            words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            owner = [known.get(".".join(_parts(one)), "") for one in node.args[:1]]
            yield from ((node.lineno, ".".join(filter(None, [*owner, word]))) for word in words)


def _parts(node: ast.expr) -> list[str]:
    """Return the names of `a.b.c`, and nothing for another expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = _parts(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner and isinstance(node, ast.Attribute) else []


def _is_starter(name: str) -> bool:
    if any(name == one or name.startswith(f"{one}.") for one in STARTERS):
        return True
    return any(name.startswith(f"{module}.{call}") for module, calls in CALLS.items() for call in calls)


def test_no_other_room_starts_a_process() -> None:
    found = {
        f"{module}:{line}"
        for module, file in modules().items()
        if room_of(module) != "omni_kit.isolation"
        for line in starts(file.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "def f():\n    import subprocess as s",
        "from subprocess import run",
        "import multiprocessing.pool",
        "from torch.multiprocessing.spawn import spawn",
        "import torch\ntorch.multiprocessing.spawn(f)",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures as c\nc.ProcessPoolExecutor()",
        "import os\nos.fork()",
        "from os import execvpe",
        "import os as system\nsystem.spawnlp(0, 'a')",
        "import os\nos.posix_spawn('a', [], {})",
        "import os\nos.system('a')",
        "import os\ngetattr(os, 'popen')('a')",
        "import asyncio\nasyncio.create_subprocess_exec('a')",
        "import importlib\nimportlib.import_module('subprocess')",
        "__import__('subprocess')",
    ],
)
def test_what_starts_a_process_is_seen(text: str) -> None:
    assert starts(text)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.path.join('a', 'b')\nos.environ",
        "from concurrent.futures import ThreadPoolExecutor",
        "import asyncio\nasyncio.run(f())",
        "import torch\ntorch.distributed.barrier()",
        "system = 1\nfork = 2\nfork.system",
    ],
)
def test_what_starts_none_is_left_alone(text: str) -> None:
    assert not starts(text)
