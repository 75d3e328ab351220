"""The installed diffusers as a checkout."""

import shutil
from importlib.util import find_spec
from pathlib import Path

RULES = """[tool.ruff]
line-length = 119

[tool.ruff.lint.isort]
lines-after-imports = 2
known-first-party = ["diffusers"]

[tool.ruff.lint.per-file-ignores]
"__init__.py" = ["F401", "F403"]
"""


def copied_checkout(root: Path) -> Path:
    """A copy of the package, with a table of contents and rules of its own, below `root`."""
    spec = find_spec("diffusers")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, root / "src" / "diffusers")  # with what is compiled: processes write none
    pages = root / "docs" / "source" / "en"
    pages.mkdir(parents=True)
    listed = [("api/models/flux_transformer", "FluxTransformer2DModel"), ("api/models/wan", "WanTransformer3DModel")]
    listed += [("api/pipelines/flux", "Flux"), ("api/pipelines/wan", "Wan")]
    listed += [("api/schedulers/ddim", "DDIMScheduler"), ("api/schedulers/unipc", "UniPCMultistepScheduler")]
    listed += [("api/modular_diffusers/guiders", "Guiders"), ("api/modular_diffusers/pipeline", "Pipeline")]
    lines = [f"  - local: {local}\n    title: {title}\n" for local, title in listed]
    (pages / "_toctree.yml").write_text("- sections:\n" + "".join(lines), encoding="utf-8")
    (root / "pyproject.toml").write_text(RULES, encoding="utf-8")
    for folder in ("", "pipelines", "modular_pipelines"):
        tests = root / "tests" / folder
        tests.mkdir(parents=True)
        (tests / "__init__.py").touch()
    return root
