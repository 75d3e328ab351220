# SGLang has an environment of its own, whose pins differ. omni-kit is installed there, too: call it as
# .venv-sglang/bin/omni-kit for whatever runs SGLang.
SGLANG       := .venv-sglang
ENVIRONMENTS += $(SGLANG)
SGLANG_PIP   := $(SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check -c environments/sglang/constraints.txt

.PHONY: sglang-env test-sglang coverage-sglang

sglang-env: $(SGLANG)/.ready

# Some faults that have been found are SGLang's.
found: sglang-env

$(SGLANG)/.ready: pyproject.toml $(wildcard environments/sglang/*.txt environments/sglang/*.pth)
	$(PYTHON) -m venv $(SGLANG)
	$(SGLANG_PIP) torch==2.13.0
	$(SGLANG_PIP) -r environments/sglang/requirements.txt
	$(SGLANG_PIP) --no-deps -r environments/sglang/no-deps.txt
	$(SGLANG_PIP) -e .
	# SGLang's servers spawn processes, which find a stand-in for torchaudio and torchvision's operators, too.
	cp environments/sglang/omni_kit_stand_ins.pth $(SGLANG)/lib/python*/site-packages/
	touch $@

# Scaffolds that are run by SGLang's own engine, on a CPU, beside diffusers.
test-sglang: $(SGLANG)/.ready
	$(SGLANG)/bin/python -m pytest tests/targets/sglang_diffusion

# Every pipeline of diffusers through the whole path; NAMES='LTXPipeline ...' takes these alone, and updates their rows.
coverage-sglang: $(SGLANG)/.ready
	$(SGLANG)/bin/python -m omni_kit.coverage served $(NAMES) --into docs/served.md
