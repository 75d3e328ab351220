"""Both faults are gone, and nothing else was changed."""

from omni_evals.grader import Grader


def grade(g: Grader) -> None:
    g.untouched("plugins/wan_t2v/pipeline_config.py")
    g.clean("plugins/wan_t2v")
    text = (g.app / "plugins/wan_t2v/pipeline_config.py").read_text()
    g.need('["negative"]' in text, "the negative branch still gets the positive conditions")
