"""Random subsets of patches on real upstream files: the untouched stays byte for byte, the patched is the patch."""

import ast
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_kit.patchgen import run_config
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.source import Definition, SourceModule, read_source

MODULES = [
    f"transformers.models.{m}.modeling_{m}" for m in ("llama", "qwen3_moe", "gpt_oss", "deepseek_v3", "qwen2_vl")
]
BODY = 'note = """one\ntwo"""\nreturn note, {number}'


def functions(source: SourceModule) -> list[Definition]:
    """The functions and methods that a config can address, one for each path."""
    found = [source.get(path) for path in source.definitions]
    return [d for d in found if d is not None and isinstance(d.node, ast.FunctionDef) and d.node.name != "__init__"]


def patch_text(definition: Definition, number: int) -> str:
    """A patch with upstream's parameters and another body."""
    assert isinstance(definition.node, ast.FunctionDef)
    arguments = definition.node.args
    bare = ast.arguments(
        arguments.posonlyargs, [ast.arg(a.arg) for a in arguments.args], arguments.vararg and ast.arg("args"),
        [ast.arg(a.arg) for a in arguments.kwonlyargs],
        [d and ast.Constant(None) for d in arguments.kw_defaults], arguments.kwarg and ast.arg("kwargs"),
        [ast.Constant(None) for _ in arguments.defaults],
    )  # fmt: skip
    kind = "override_method" if definition.owner else "replace_function"
    head = f"@config.{kind}({definition.path!r})\ndef patched_{number}({ast.unparse(bare)}):\n"
    return head + "    " + BODY.format(number=number).replace("\nreturn", "\n    return") + "\n"


def without_docstring_layout(node: ast.FunctionDef) -> str:
    return "\n".join(map(ast.dump, node.body))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_subsets(data: st.DataObject, tmp_path: Path) -> None:
    source = read_source(data.draw(st.sampled_from(MODULES)), Libraries())
    chosen = data.draw(st.lists(st.sampled_from(functions(source)), max_size=6, unique_by=lambda d: d.path))
    config = tmp_path / "random_patch_gen_config.py"
    texts = [patch_text(definition, number) for number, definition in enumerate(chosen)]
    head = f"from patchgen import PatchConfig\n\nconfig = PatchConfig({source.name!r}, 'after.py')\n\n\n"
    config.write_text(head + "\n\n".join(texts), encoding="utf-8")

    result = run_config(config, tmp_path / "out")

    assert result.status in ("written", "unchanged"), result.diagnostics
    made = SourceModule(source.name, source.path, result.text)
    compile(result.text, "after.py", "exec")
    for number, definition in enumerate(chosen):
        new = made.get(definition.path)
        assert new is not None
        assert isinstance(new.node, ast.FunctionDef)
        wanted = ast.parse("def f():\n    " + BODY.format(number=number).replace("\nreturn", "\n    return"))
        assert without_docstring_layout(new.node) == without_docstring_layout(wanted.body[0])  # type: ignore[arg-type]
    patched = {definition.path for definition in chosen}
    for path in source.definitions:
        old, new = source.get(path), made.get(path)
        if old is None or any(p == path or p.startswith(f"{path}.") for p in patched):
            continue
        assert new is not None, path
        assert made.code_of(new) == source.code_of(old)


def test_no_patches_change_nothing_but_imports(tmp_path: Path) -> None:
    source = read_source(MODULES[0], Libraries())
    config = tmp_path / "none_patch_gen_config.py"
    config.write_text(f"from patchgen import PatchConfig\n\nconfig = PatchConfig({source.name!r}, 'after.py')\n")
    result = run_config(config)
    first = source.text.index("logger = ")
    assert source.text[first:] in result.text
