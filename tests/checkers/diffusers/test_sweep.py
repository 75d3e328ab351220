"""All rules on all of diffusers: what is said of it is known, and each is a real deviation."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_checkers import all_rules
from omni_checkers.diffusers.facts.model import model_facts
from omni_checkers.engine.rule import NotApplicable
from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.finding import find
from omni_kit.upstream.diffusers.package import package_parts, part_files

# How often each rule speaks of each file.
KNOWN = {
    # Attention over the features of a face is written out, in a model of its own kind.
    ("DFU111", "models/transformers/consisid_transformer_3d.py"): 2,
    # The text encoder is ChatGLM as its authors wrote it, and computes attention itself.
    ("DFU111", "pipelines/kolors/text_encoder.py"): 2,
    # LDMBert computes attention as its authors wrote it.
    ("DFU111", "pipelines/latent_diffusion/pipeline_latent_diffusion.py"): 1,
    # Both processors hand over neither: set_attention_backend and context parallelism pass them by.
    ("DFU112", "models/transformers/transformer_cosmos.py"): 10,
    # The model has no part of that name; under layerwise casting the pattern fits nothing.
    ("DFU121", "models/transformers/transformer_cosmos.py"): 1,
    ("DFU121", "models/transformers/transformer_glm_image.py"): 1,
    # What is not a requirement is imported without a guard: diffusers imports these files where it is installed.
    ("DFU135", "pipelines/controlnet/pipeline_flax_controlnet.py"): 5,
    ("DFU135", "pipelines/cosmos/pipeline_cosmos2_5_predict.py"): 3,
    ("DFU135", "pipelines/kolors/tokenizer.py"): 1,
    ("DFU135", "pipelines/marigold/pipeline_marigold_depth.py"): 1,
    ("DFU135", "pipelines/stable_diffusion/pipeline_flax_stable_diffusion.py"): 5,
    ("DFU135", "pipelines/stable_diffusion/pipeline_flax_stable_diffusion_img2img.py"): 5,
    ("DFU135", "pipelines/stable_diffusion/pipeline_flax_stable_diffusion_inpaint.py"): 5,
    ("DFU135", "pipelines/stable_diffusion/safety_checker_flax.py"): 4,
    ("DFU135", "pipelines/stable_diffusion_xl/pipeline_flax_stable_diffusion_xl.py"): 3,
    ("DFU135", "schedulers/scheduling_ddim_flax.py"): 2,
    ("DFU135", "schedulers/scheduling_ddpm_flax.py"): 3,
    ("DFU135", "schedulers/scheduling_dpmsolver_multistep_flax.py"): 3,
    ("DFU135", "schedulers/scheduling_dpmsolver_sde.py"): 1,
    ("DFU135", "schedulers/scheduling_euler_discrete_flax.py"): 2,
    ("DFU135", "schedulers/scheduling_karras_ve_flax.py"): 4,
    ("DFU135", "schedulers/scheduling_lms_discrete_flax.py"): 3,
    ("DFU135", "schedulers/scheduling_pndm_flax.py"): 3,
    ("DFU135", "schedulers/scheduling_sde_ve_flax.py"): 4,
    ("DFU135", "schedulers/scheduling_utils.py"): 1,
    ("DFU135", "schedulers/scheduling_utils_flax.py"): 2,
    # The last component is not offloaded at the end.
    ("DFU228", "pipelines/audioldm/pipeline_audioldm.py"): 1,
    ("DFU228", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_dual_guided.py"): 1,
    ("DFU228", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_image_variation.py"): 1,
    ("DFU228", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_text_to_image.py"): 1,
    ("DFU228", "pipelines/latent_diffusion/pipeline_latent_diffusion.py"): 1,
    ("DFU228", "pipelines/semantic_stable_diffusion/pipeline_semantic_stable_diffusion.py"): 1,
    ("DFU228", "pipelines/stable_diffusion_safe/pipeline_stable_diffusion_safe.py"): 1,
    # Scales of adapters, and in Chroma's second kind of block the mask, are left out while blocks are checkpointed.
    ("DFU125", "models/transformers/auraflow_transformer_2d.py"): 2,
    ("DFU125", "models/transformers/transformer_chroma.py"): 3,
    # Attention weights are not asked for while LDMBert's layers are checkpointed.
    ("DFU125", "pipelines/latent_diffusion/pipeline_latent_diffusion.py"): 1,
    # apply_rotary casts to bfloat16 whatever the model's dtype is.
    ("DFU131", "models/transformers/transformer_kandinsky.py"): 1,
    # Logits of vectorized latents are made float64, which MPS does not have.
    ("DFU131", "models/transformers/transformer_2d.py"): 1,
    # The default of a parameter is "cuda": on other devices every caller has to say otherwise.
    ("DFU132", "pipelines/audioldm2/pipeline_audioldm2.py"): 1,
    ("DFU132", "pipelines/kandinsky5/pipeline_kandinsky.py"): 1,
    ("DFU132", "pipelines/kandinsky5/pipeline_kandinsky_i2v.py"): 1,
    ("DFU132", "pipelines/wan/pipeline_wan_animate.py"): 1,
    # Exported wherever torch and transformers are, and needs OpenCV and torchvision at import.
    ("DFU133", "pipelines/consisid/consisid_utils.py"): 3,
    # Exported wherever torch and transformers are, and needs torchvision at import.
    ("DFU133", "pipelines/cosmos/pipeline_cosmos2_5_predict.py"): 3,
    # The sequence is that of the pipeline that these are parts of.
    ("DFU203", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_dual_guided.py"): 3,
    ("DFU203", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_image_variation.py"): 3,
    ("DFU203", "pipelines/deprecated/versatile_diffusion/pipeline_versatile_diffusion_text_to_image.py"): 3,
    # The sequence was copied from Flux; these components are not there.
    ("DFU203", "pipelines/bria_fibo/pipeline_bria_fibo.py"): 2,
    ("DFU203", "pipelines/bria_fibo/pipeline_bria_fibo_edit.py"): 1,
    # The sequence was copied from Flux; this component is not there.
    ("DFU203", "pipelines/bria/pipeline_bria.py"): 1,
    ("DFU203", "pipelines/chroma/pipeline_chroma_inpainting.py"): 1,
    ("DFU203", "pipelines/longcat_image/pipeline_longcat_image_edit.py"): 1,
    # An arrow lacks its head: neither component is offloaded in its turn.
    ("DFU203", "pipelines/kolors/pipeline_kolors_img2img.py"): 1,
    # A name that neither the components nor __call__ have: a callback that asks for it fails.
    ("DFU203", "pipelines/controlnet/pipeline_controlnet_union_inpaint_sd_xl.py"): 1,
    ("DFU203", "pipelines/ledits_pp/pipeline_leditspp_stable_diffusion.py"): 2,
    ("DFU203", "pipelines/ledits_pp/pipeline_leditspp_stable_diffusion_xl.py"): 1,
    # Drawn from the global generator: the same seed gives another output.
    ("DFU211", "pipelines/animatediff/pipeline_animatediff_sparsectrl.py"): 1,
    ("DFU211", "pipelines/cogview4/pipeline_cogview4_control.py"): 1,
    ("DFU211", "pipelines/consistency_models/pipeline_consistency_models.py"): 1,
    ("DFU211", "pipelines/controlnet_hunyuandit/pipeline_hunyuandit_controlnet.py"): 2,
    ("DFU211", "pipelines/controlnet_sd3/pipeline_stable_diffusion_3_controlnet.py"): 2,
    ("DFU211", "pipelines/controlnet_sd3/pipeline_stable_diffusion_3_controlnet_inpainting.py"): 1,
    ("DFU211", "pipelines/i2vgen_xl/pipeline_i2vgen_xl.py"): 1,
    ("DFU211", "pipelines/kandinsky2_2/pipeline_kandinsky2_2_prior_emb2emb.py"): 1,
    ("DFU211", "pipelines/omnigen/pipeline_omnigen.py"): 1,
    ("DFU211", "pipelines/qwenimage/pipeline_qwenimage_controlnet_inpaint.py"): 1,
    ("DFU211", "pipelines/skyreels_v2/pipeline_skyreels_v2_diffusion_forcing.py"): 1,
    ("DFU211", "pipelines/skyreels_v2/pipeline_skyreels_v2_diffusion_forcing_i2v.py"): 1,
    ("DFU211", "pipelines/skyreels_v2/pipeline_skyreels_v2_diffusion_forcing_v2v.py"): 1,
    ("DFU211", "pipelines/stable_diffusion_gligen/pipeline_stable_diffusion_gligen.py"): 3,
    ("DFU211", "pipelines/stable_diffusion_gligen/pipeline_stable_diffusion_gligen_text_image.py"): 3,
    # Decodes for "latent", too, and hands the pixels to what makes pictures of them.
    ("DFU212", "pipelines/blip_diffusion/pipeline_blip_diffusion.py"): 1,
    ("DFU212", "pipelines/controlnet/pipeline_controlnet_blip_diffusion.py"): 1,
    ("DFU212", "pipelines/dit/pipeline_dit.py"): 1,
    # Steps of several timesteps at once, by batch_step_no_noise of parallel schedulers.
    ("DFU214", "pipelines/deprecated/stable_diffusion_variants/pipeline_stable_diffusion_paradigms.py"): 1,
    # Taken, documented and never read.
    ("DFU215", "pipelines/audioldm2/pipeline_audioldm2.py"): 1,
    ("DFU215", "pipelines/chroma/pipeline_chroma_inpainting.py"): 1,
    ("DFU215", "pipelines/helios/pipeline_helios_pyramid.py"): 1,
    ("DFU215", "pipelines/ledits_pp/pipeline_leditspp_stable_diffusion_xl.py"): 1,
    ("DFU215", "pipelines/pag/pipeline_pag_controlnet_sd_xl_img2img.py"): 1,
    ("DFU215", "pipelines/paint_by_example/pipeline_paint_by_example.py"): 1,
    ("DFU215", "pipelines/stable_diffusion/pipeline_stable_unclip_img2img.py"): 1,
    ("DFU215", "pipelines/text_to_video_synthesis/pipeline_text_to_video_zero_sdxl.py"): 1,
    # Everything is repeated so: pictures come in another order than anywhere else.
    ("DFU221", "pipelines/amused/pipeline_amused.py"): 4,
    ("DFU221", "pipelines/amused/pipeline_amused_img2img.py"): 5,
    ("DFU221", "pipelines/amused/pipeline_amused_inpaint.py"): 5,
    ("DFU221", "pipelines/unidiffuser/pipeline_unidiffuser.py"): 1,
    # Position ids are the same for all prompts.
    ("DFU221", "pipelines/bria/pipeline_bria.py"): 1,
    # Embeddings of images for IP-Adapter: right for one image alone.
    ("DFU221", "pipelines/controlnet_sd3/pipeline_stable_diffusion_3_controlnet.py"): 2,
    ("DFU221", "pipelines/controlnet_sd3/pipeline_stable_diffusion_3_controlnet_inpainting.py"): 2,
    ("DFU221", "pipelines/stable_diffusion_3/pipeline_stable_diffusion_3.py"): 2,
    ("DFU221", "pipelines/stable_diffusion_3/pipeline_stable_diffusion_3_img2img.py"): 2,
    ("DFU221", "pipelines/stable_diffusion_3/pipeline_stable_diffusion_3_inpaint.py"): 2,
    # One image is embedded.
    ("DFU221", "pipelines/kandinsky2_2/pipeline_kandinsky2_2_prior.py"): 1,
    # Images, masks or sounds are repeated as a whole, prompts one by one: with two of each they are mixed up.
    ("DFU221", "pipelines/deprecated/stable_diffusion_variants/pipeline_cycle_diffusion.py"): 1,
    ("DFU221", "pipelines/deprecated/stable_diffusion_variants/pipeline_onnx_stable_diffusion_inpaint_legacy.py"): 2,
    ("DFU221", "pipelines/deprecated/stable_diffusion_variants/pipeline_stable_diffusion_inpaint_legacy.py"): 2,
    ("DFU221", "pipelines/i2vgen_xl/pipeline_i2vgen_xl.py"): 1,
    ("DFU221", "pipelines/stable_audio/pipeline_stable_audio.py"): 1,
    ("DFU221", "pipelines/stable_diffusion/pipeline_onnx_stable_diffusion_img2img.py"): 1,
    ("DFU221", "pipelines/stable_diffusion_diffedit/pipeline_stable_diffusion_diffedit.py"): 1,
    ("DFU221", "pipelines/stable_video_diffusion/pipeline_stable_video_diffusion.py"): 1,
    # The mask of the prompt is repeated as a whole, its embedding row by row: with two prompts they are mixed up.
    ("DFU221", "pipelines/aura_flow/pipeline_aura_flow.py"): 2,
    ("DFU221", "pipelines/controlnet_hunyuandit/pipeline_hunyuandit_controlnet.py"): 2,
    ("DFU221", "pipelines/easyanimate/pipeline_easyanimate.py"): 2,
    ("DFU221", "pipelines/easyanimate/pipeline_easyanimate_control.py"): 2,
    ("DFU221", "pipelines/easyanimate/pipeline_easyanimate_inpaint.py"): 2,
    ("DFU221", "pipelines/hunyuandit/pipeline_hunyuandit.py"): 2,
    ("DFU221", "pipelines/kandinsky3/pipeline_kandinsky3.py"): 2,
    ("DFU221", "pipelines/kandinsky3/pipeline_kandinsky3_img2img.py"): 2,
    ("DFU221", "pipelines/latte/pipeline_latte.py"): 1,
    ("DFU221", "pipelines/ltx/pipeline_ltx.py"): 1,
    ("DFU221", "pipelines/ltx/pipeline_ltx_condition.py"): 1,
    ("DFU221", "pipelines/ltx/pipeline_ltx_i2v_long_multi_prompt.py"): 1,
    ("DFU221", "pipelines/ltx/pipeline_ltx_image2video.py"): 1,
    ("DFU221", "pipelines/ltx2/pipeline_ltx2.py"): 1,
    ("DFU221", "pipelines/ltx2/pipeline_ltx2_condition.py"): 1,
    ("DFU221", "pipelines/ltx2/pipeline_ltx2_image2video.py"): 1,
    ("DFU221", "pipelines/lumina/pipeline_lumina.py"): 2,
    ("DFU221", "pipelines/lumina2/pipeline_lumina2.py"): 2,
    ("DFU221", "pipelines/mochi/pipeline_mochi.py"): 1,
    ("DFU221", "pipelines/pag/pipeline_pag_hunyuandit.py"): 2,
    ("DFU221", "pipelines/pag/pipeline_pag_sana.py"): 2,
    ("DFU221", "pipelines/prx/pipeline_prx.py"): 2,
    ("DFU221", "pipelines/sana/pipeline_sana.py"): 2,
    ("DFU221", "pipelines/sana/pipeline_sana_controlnet.py"): 2,
    ("DFU221", "pipelines/sana/pipeline_sana_sprint.py"): 1,
    ("DFU221", "pipelines/sana/pipeline_sana_sprint_img2img.py"): 1,
    ("DFU221", "pipelines/sana_video/pipeline_sana_video.py"): 2,
    ("DFU221", "pipelines/sana_video/pipeline_sana_video_i2v.py"): 2,
    # The mask of the prompt is made and dropped, though the UNet takes one: padding takes part in attention.
    ("DFU222", "pipelines/kandinsky/pipeline_kandinsky.py"): 1,
    ("DFU222", "pipelines/kandinsky/pipeline_kandinsky_img2img.py"): 1,
    ("DFU222", "pipelines/kandinsky/pipeline_kandinsky_inpaint.py"): 1,
    # In one of both lists alone, as `from diffusers... import` or a type checker says.
    ("DFU301", "__init__.py"): 6,
    ("DFU301", "pipelines/__init__.py"): 2,
    ("DFU301", "pipelines/ledits_pp/__init__.py"): 1,
    ("DFU301", "pipelines/pixart_alpha/__init__.py"): 4,
    # Outputs and safety checkers in the table alone, some of them of no class at all.
    ("DFU301", "pipelines/chroma/__init__.py"): 1,
    ("DFU301", "pipelines/cogview3/__init__.py"): 2,
    ("DFU301", "pipelines/cogview4/__init__.py"): 2,
    ("DFU301", "pipelines/deprecated/versatile_diffusion/__init__.py"): 1,
    ("DFU301", "pipelines/flux/__init__.py"): 2,
    ("DFU301", "pipelines/flux2/__init__.py"): 1,
    ("DFU301", "pipelines/glm_image/__init__.py"): 1,
    ("DFU301", "pipelines/hidream_image/__init__.py"): 1,
    ("DFU301", "pipelines/qwenimage/__init__.py"): 4,
    ("DFU301", "pipelines/semantic_stable_diffusion/__init__.py"): 1,
    ("DFU301", "pipelines/stable_diffusion/__init__.py"): 1,
    ("DFU301", "pipelines/stable_diffusion_3/__init__.py"): 1,
    ("DFU301", "pipelines/stable_diffusion_safe/__init__.py"): 3,
    ("DFU301", "pipelines/stable_diffusion_xl/__init__.py"): 1,
    # No dummy: without torch or transformers the import fails without a word of what is missing.
    ("DFU302", "__init__.py"): 3,
    # Another signature than the source has: a parameter is gone, or stands elsewhere.
    ("DFU311", "pipelines/deepfloyd_if/pipeline_if_img2img.py"): 1,
    ("DFU311", "pipelines/deepfloyd_if/pipeline_if_img2img_superresolution.py"): 1,
    ("DFU311", "pipelines/deepfloyd_if/pipeline_if_inpainting.py"): 1,
    ("DFU311", "pipelines/deepfloyd_if/pipeline_if_inpainting_superresolution.py"): 1,
    ("DFU311", "pipelines/ledits_pp/pipeline_leditspp_stable_diffusion.py"): 1,
    ("DFU311", "pipelines/ledits_pp/pipeline_leditspp_stable_diffusion_xl.py"): 1,
    # Another signature than the source has: a default is gone, or a method became a function.
    ("DFU311", "modular_pipelines/flux/before_denoise.py"): 1,
    ("DFU311", "pipelines/audioldm2/modeling_audioldm2.py"): 1,
    # The block uses a component that it does not expect: alone in a pipeline it fails.
    ("DFU403", "modular_pipelines/flux/before_denoise.py"): 2,
    ("DFU403", "modular_pipelines/qwenimage/denoise.py"): 1,
    ("DFU403", "modular_pipelines/qwenimage/inputs.py"): 3,
    ("DFU403", "modular_pipelines/stable_diffusion_xl/before_denoise.py"): 1,
    ("DFU403", "modular_pipelines/z_image/before_denoise.py"): 1,
    # A function or a static method of the standard pipeline is used, not copied.
    ("DFU404", "modular_pipelines/flux/before_denoise.py"): 1,
    ("DFU404", "modular_pipelines/flux/inputs.py"): 1,
    ("DFU404", "modular_pipelines/qwenimage/encoders.py"): 1,
}
RULES = [rule for rule in all_rules() if rule.id.startswith("DFU") and rule.level == "static"]


def _said(root: Path) -> Iterator[tuple[str, str]]:
    for part in package_parts(root):
        facts, _ = model_facts(part)
        for rule in RULES:
            try:
                for finding in facts.call(rule().check):
                    yield rule.id, finding.path.relative_to(root).as_posix()
            except NotApplicable:
                continue


@pytest.mark.sweep
def test_what_rules_say_of_diffusers_is_known() -> None:
    root = find_library("diffusers").root
    assert dict(Counter(_said(root))) == KNOWN


def test_every_file_is_in_one_part() -> None:
    root = find_library("diffusers").root
    files = [file for part in package_parts(root) for file in part_files(root, part)]
    assert len(files) == len(set(files))
    for place in ("models/transformers", "schedulers"):
        assert set((root / place).glob("*.py")) <= set(files)
    assert {file for file in (root / "modular_pipelines").rglob("*.py") if file.parent.name != "modular_pipelines"} <= {
        *files
    }


def test_a_file_is_judged_with_the_part_that_it_is_in() -> None:
    root = find_library("diffusers").root
    flux, place = root / "models" / "transformers" / "transformer_flux.py", root / "pipelines" / "flux"
    assert [one.path for one in find(flux)] == [place]
    assert [one.path for one in find(root / "schedulers")] == sorted(
        file for file in (root / "schedulers").glob("*.py") if file.name != "__init__.py"
    )
    assert {one.path for one in find(root)} == set(package_parts(root))
