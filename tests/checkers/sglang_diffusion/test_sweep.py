"""All rules on all of SGLang's own pipelines: what is said of them is known, and each is a real deviation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_checkers import all_rules
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.model import pipeline_facts, resolved_files
from omni_checkers.sglang_diffusion.facts.serving import Serving, entries
from omni_checkers.sglang_diffusion.facts.sources import sources_at

KNOWN = {
    # GLM-Image means no negative prompt; `negative_prompt = ""` is no field, and requests have the one for films.
    ("SGD103", "glmimage.py", "'negative_prompt' has no annotation"),
    # Positions, shapes and lengths are computed for each request; forward has **kwargs and never looks at them.
    ("SGD203", "ernie_image.py", "accepts 'txt_seq_lens' in"),
    ("SGD203", "ernie_image.py", "accepts 'freqs_cis' in"),
    ("SGD203", "ernie_image.py", "accepts 'img_shapes' in"),
    # diffusers masks padding out; here the masks are handed over and dropped.
    ("SGD203", "hunyuan.py", "accepts 'encoder_attention_mask' in"),
    ("SGD203", "hunyuan.py", "accepts 'encoder_hidden_states_mask' in"),
    # diffusers' FluxControlNetPipeline hands the residuals to both branches.
    ("SGD203", "flux.py", "does not return 'controlnet_block_samples'"),
    ("SGD203", "flux.py", "does not return 'controlnet_single_block_samples'"),
    # diffusers hands over linspace(1, 0, steps + 1)[:-1]; the scheduler's own grid ends elsewhere.
    ("SGD301", "hunyuan.py", "returns none of the sigmas"),
    # diffusers reads base_shift, max_shift and both lengths from the scheduler's config.
    ("SGD301", "flux.py", "mu is computed from constants"),
    ("SGD301", "qwen_image.py", "mu is computed from constants"),
    ("SGD301", "zimage_pipeline.py", "mu is computed from constants"),
    ("SGD301", "helios_denoising.py", "mu is computed from constants"),
    # The branch for an autoencoder without batch norm multiplies by its factor, where latents were multiplied before.
    ("SGD302", "flux.py", "the scale is 1 / scaling_factor"),
    # Other defaults than those of diffusers, mostly those of the model cards.
    ("SGD305", "flux.py", "'num_inference_steps' is 50"),
    ("SGD305", "glmimage.py", "'num_inference_steps' is 30"),
    ("SGD305", "helios.py", "'num_frames' is 99"),
    ("SGD305", "hunyuan.py", "'num_frames' is 125"),
    ("SGD305", "qwenimage.py", "'num_inference_steps' is 40"),
    ("SGD305", "stablediffusion3.py", "'num_inference_steps' is 50"),
    ("SGD305", "wan.py", "'guidance_scale' is 3.0"),
    # Defaults that are those of other sizes; every config.json that diffusers writes says them all.
    ("SGD106", "flux.py", " by default, but "),
    ("SGD106", "glmimage.py", " by default, but "),
    ("SGD106", "hunyuanvideo.py", "'guidance_embeds' is False by default"),
    ("SGD106", "ltx_2.py", "'patch_size' is (1, 2, 2) by default"),
    ("SGD106", "qwenimage.py", " by default, but "),
    ("SGD106", "sana_video.py", "'mlp_ratio' is 3.0 by default"),
    # FLUX.2 has the architecture of FLUX.1: what is only its own comes as extra_attrs.
    ("SGD106", "flux.py", "has no field for"),
    # What these configs say is dropped: variants that are not served, or constants in the denoiser's own code.
    ("SGD106", "hunyuanvideo.py", "'image_condition_type'"),
    ("SGD106", "ltx_2.py", "has no field for"),
    ("SGD106", "qwenimage.py", "has no field for"),
    ("SGD106", "sana.py", "has no field for"),
    ("SGD106", "sana_video.py", "'interpolation_scale'"),
    # 30 layers and 30 heads are built, whatever n_layers and n_heads say.
    ("SGD106", "zimage.py", "has no field for"),
    # Rows of latents are shared out, and diffusers' blocks attend to what they get; a note in the file says so.
    ("SGD401", "stablediffusion3.py", "attends only to its own part"),
}
RULES = [rule for rule in all_rules() if rule.id.startswith("SGD") and rule.level == "static"]


def pipelines(root: Path) -> Iterator[Serving]:
    """Every pipeline that SGLang would register."""
    sources = sources_at(root)
    for file in sorted((root / "multimodal_gen" / "runtime" / "pipelines").glob("*.py")):
        source = sources.read(file)
        for cls in entries(source) if source is not None else ():
            found = cls.assigned("pipeline_name")
            first = Serving(sources, cls, str(getattr(found[1], "value", "")) if found is not None else "", (), True)
            yield Serving(sources, cls, first.name, tuple(dict.fromkeys(resolved_files(first))), True)


@pytest.mark.sweep
def test_rules_are_quiet_on_sglangs_own_pipelines(sglang_root: Path) -> None:
    said: dict[tuple[str, str, str], set[str]] = {}
    count = 0
    for serving in pipelines(sglang_root):
        count += 1
        facts = pipeline_facts(serving)
        for rule in RULES:
            try:
                for finding in facts.call(rule().check):
                    key = rule.id, finding.path.name, finding.message
                    said.setdefault(key, set()).add(serving.name)
            except NotApplicable:
                continue
    unknown = {key: names for key, names in said.items() if not any(_is(key, known) for known in KNOWN)}
    assert count >= 66
    assert unknown == {}
    assert [known for known in KNOWN if not any(_is(key, known) for key in said)] == []


def _is(said: tuple[str, str, str], known: tuple[str, str, str]) -> bool:
    return said[:2] == known[:2] and known[2] in said[2]
