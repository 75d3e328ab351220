"""Takes conditions of sounds from a generated integration, in a process of its own.

python -m tests.targets.veomni.dit.audio_probe PLACE ANSWERS: PLACE gets a tiny pipeline, its integration and its data.
"""

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from omni_kit.scaffold import new_model
from omni_kit.targets.veomni.runtime.trainer import without_torchvision
from tests.diffusers_pipelines import tokenizer

_RATE, _HOP, _SIZE = 16000, 8, 64  # samples a second, samples for a latent, and latents of every sound
_DRAWS = 24


def main(place: Path, answers: Path) -> None:
    """Leaves what was found in a JSON file."""
    root = place / "pipeline"
    _small().save_pretrained(root)
    new_model("sounds", str(root), target="veomni", into=place)
    sys.path.insert(0, str(place))
    sys.argv = ["make_data", str(place / "data.jsonl"), "--samples", "2", "--seconds", "0.04"]
    runpy.run_module("sounds.make_data", run_name="__main__")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    from veomni.distributed.parallel_state import init_parallel_state

    init_parallel_state(dp_size=1, device_type="cpu")
    answers.write_text(json.dumps(_found(root, place / "data.jsonl")), encoding="utf-8")


def _small() -> Any:
    from diffusers import AutoencoderOobleck, CosineDPMSolverMultistepScheduler, StableAudioDiTModel
    from diffusers.pipelines.stable_audio import StableAudioPipeline, StableAudioProjectionModel
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    encoder = T5EncoderModel(T5Config(vocab_size=64, d_model=32, d_ff=37, num_layers=1, num_heads=2, d_kv=8))
    transformer = StableAudioDiTModel(
        sample_size=_SIZE, in_channels=8, out_channels=8, num_layers=1, attention_head_dim=8, num_attention_heads=4,
        num_key_value_attention_heads=2, cross_attention_dim=32, cross_attention_input_dim=32,
        global_states_input_dim=64, time_proj_dim=8,
    )  # fmt: skip
    autoencoder = AutoencoderOobleck(
        encoder_hidden_size=16, downsampling_ratios=[2, 4], channel_multiples=[1, 2], decoder_channels=8,
        decoder_input_channels=8, audio_channels=2, sampling_rate=_RATE,
    )  # fmt: skip
    return StableAudioPipeline(
        vae=autoencoder, text_encoder=encoder, tokenizer=tokenizer(16), transformer=transformer,
        projection_model=StableAudioProjectionModel(text_encoder_dim=32, conditioning_dim=32, min_value=0, max_value=9),
        scheduler=CosineDPMSolverMultistepScheduler(sigma_schedule="exponential", prediction_type="v_prediction"),
    )  # fmt: skip


def _found(root: Path, data: Path) -> dict[str, Any]:
    from diffusers import CosineDPMSolverMultistepScheduler

    without_torchvision()
    from veomni.data.multimodal.preprocess import PREPROCESSOR_REGISTRY

    package, _ = (importlib.import_module(f"sounds.sounds_condition{part}") for part in ("", ".data"))
    config = package.register_sounds_condition_config().from_pretrained(str(root), torch_dtype_of_encoders="float32")
    condition = package.register_sounds_condition_modeling()._from_config(config)
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    prompts, sounds, *_ = zip(*(PREPROCESSOR_REGISTRY["sounds"](row) for row in rows), strict=True)
    given = condition.get_condition(inputs=list(prompts), outputs=list(sounds), images=[[], []], videos=[[], []])
    scheduler = CosineDPMSolverMultistepScheduler.from_pretrained(root, subfolder="scheduler")
    scheduler.set_timesteps(scheduler.config.num_train_timesteps)
    clean, off, steps = given["latents"][0], [], set()
    for _ in range(_DRAWS):
        ready = condition.process_condition(**given)
        place = int((scheduler.timesteps - ready["timestep"][0]).abs().argmin())
        steps.add(place)
        scheduler._step_index = place
        noised = ready["hidden_states"][0] / scheduler.precondition_inputs(torch.ones(()), scheduler.sigmas[place])
        ended = scheduler.convert_model_output(ready["training_target"][0], sample=noised)
        off.append(float((ended - clean).abs().max() / clean.abs().max()))
    seconds = [condition._pixels(sound).shape[-1] / _RATE for sound in sounds]
    return {"off": max(off), "steps": len(steps), "seconds": seconds, "latents": list(clean.shape)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
