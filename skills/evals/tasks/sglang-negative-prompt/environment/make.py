"""The worked example, with two faults in its config."""

from omni_evals.scratch import Scratch


def make(s: Scratch) -> None:
    s.tool("reference", "copy", "sglang_diffusion/wan_t2v", "--into", "plugins")
    config = "plugins/wan_t2v/pipeline_config.py"
    s.edit(config, 'batch.extra["wan_t2v"]["negative"]', 'batch.extra["wan_t2v"]["positive"]')
    s.edit(config, "return batch.negative_prompt_embeds[0]", "return batch.prompt_embeds[0]")
    s.edit(config, "return 1.0 / deviation, mean", "return 1.0 / deviation, None")
