"""SGLang's own HTTP server with a scaffold, on a CPU: its OpenAI images API answers diffusers' picture."""

import base64
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from omni_kit.scaffold import new_model
from tests.diffusers_pipelines import save

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)
PROMPT, SEED, STEPS, SIDE = "a cat on the mat", 3, 2, 64
_STARTING, _ANSWERING = 500.0, 120.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("flux", tmp_path_factory.mktemp("checkpoints") / "toy")


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that serves the checkpoint with a scaffold of it."""
    into = tmp_path_factory.mktemp("plugins")
    new_model("flux_served", str(checkpoint), target="sglang-diffusion", force=True, into=into)
    port = _free_port()
    command = [
        sys.executable, "-m", "sglang.multimodal_gen.runtime.entrypoints.cli.main", "serve", "--num-gpus", "1",
        "--model-path", str(checkpoint), "--host", "127.0.0.1", "--port", str(port), "--dit-precision", "fp32",
        "--vae-precision", "fp32", "--text-encoder-precisions", "fp32", "fp32",
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(into), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SGLANG_EXTERNAL_MODEL_PACKAGE": "flux_served", "SGLANG_DIFFUSION_PLATFORM_OVERRIDE": "cpu",
    }  # fmt: skip
    said = into / "server.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=into, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, said)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def test_the_images_api_answers_diffusers_picture(server: str, checkpoint: Path) -> None:
    asked = {
        "prompt": PROMPT, "size": f"{SIDE}x{SIDE}", "seed": SEED, "num_inference_steps": STEPS, "n": 1,
        "response_format": "b64_json", "output_format": "png", "generator_device": "cpu", "guidance_scale": 3.5,
    }  # fmt: skip
    answer = _post(f"{server}/v1/images/generations", asked)
    served = _pixels(base64.b64decode(answer["data"][0]["b64_json"]))
    expected = _of_diffusers(checkpoint)
    assert served.shape == expected.shape
    assert abs(served.astype(int) - expected.astype(int)).max() <= 1


def _of_diffusers(checkpoint: Path) -> Any:
    import numpy as np
    import torch
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(checkpoint)
    picture = pipeline(
        PROMPT, height=SIDE, width=SIDE, num_inference_steps=STEPS, guidance_scale=3.5,
        generator=torch.Generator("cpu").manual_seed(SEED),
    ).images[0]  # fmt: skip
    return np.asarray(picture)


def _pixels(data: bytes) -> Any:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _post(address: str, asked: dict[str, Any]) -> Any:
    request = urllib.request.Request(address, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_ANSWERING) as answer:
        return json.load(answer)


def _wait(address: str, process: "subprocess.Popen[bytes]", said: Path) -> None:
    end = time.monotonic() + _STARTING
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            time.sleep(1)
    raise AssertionError(said.read_text(encoding="utf-8")[-4000:])


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
