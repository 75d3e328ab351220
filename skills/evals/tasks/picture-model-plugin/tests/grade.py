"""The gate is clean, the generated code is fresh, and parity passes in one process and in several."""

from omni_evals.grader import Grader


def grade(g: Grader) -> None:
    g.untouched()
    g.clean("plugins/osprey")
    g.generated("plugins/osprey")
    code = (g.app / "plugins/osprey/__init__.py").read_text()
    g.need("internvl" in code, "the plugin does not register the model_type")
    g.same("plugins/osprey")
    g.same("plugins/osprey", "sp", "fsdp")
