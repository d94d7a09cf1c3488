# Everything is made here. Needed beforehand: make, and a Python of 3.11 or newer with venv. `make help` lists the targets.

MAKEFLAGS += --no-builtin-rules
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# An AWS profile or an activated environment of the caller's has no say in what is built and tested here.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME CONDA_PREFIX
# Hundreds of processes import the same packages: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
export SAM_CLI_TELEMETRY := 0
# The certificates that this machine trusts, a proxy's that inspects TLS among them. pip takes them by itself.
export UV_SYSTEM_CERTS ?= true
# A Python is taken from this machine or not at all: nothing but packages is downloaded.
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy

# The first that really runs: a version manager's shim answers to its name and then refuses.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
UV := .tools/uv/bin/uv

# Of Lambda; template.yaml's parameters of the same names are what a deployed function has.
RUNTIME ?= python3.13
ARCHITECTURE ?= arm64
PLATFORM = $(RUNTIME)-$(ARCHITECTURE)
MACHINE := $(patsubst aarch64,arm64,$(shell uname -m))
ENV ?= default
EVENT ?= events/fresh.json
# Processes that tests run in; tests/conftest.py says which must share one.
WORKERS ?= 4

# A target's stamp is touched when it is complete, so that nothing is downloaded twice and nothing half-made is trusted.
PACKAGER := .tools/uv/.complete
DEVELOPMENT := .venv/.complete
MINISTACK := .tools/ministack/.complete
SAM := .tools/sam/.complete
RUNTIME_CLIENT := .tools/runtime/.complete
OPENAPI := .tools/openapi/.complete
CHECKOV := .tools/checkov/.complete
BENCH := .tools/bench/.complete

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(DEVELOPMENT) $(MINISTACK) $(SAM) $(RUNTIME_CLIENT) $(OPENAPI) ## make .venv and .tools with everything for development

.PHONY: run
run: $(DEVELOPMENT) $(MINISTACK) .build/host.complete ## play 500 transfers through the local cloud (N=500 SEED=1 PROTECTION=on STACK=name; or WORKFLOW=1 N=40)
	@.venv/bin/python -m $(if $(WORKFLOW),local.workflow_run,local.run)

.PHONY: cloud
cloud: $(DEVELOPMENT) $(MINISTACK) .build/host.complete ## keep a local cloud with the application, to try `receiver`, the API and `sam local` against it, until Ctrl-C (PORT=4566 N=50 SEED=1 REQUEST_KEY=payload)
	@.venv/bin/python -m local.sandbox

# `sam local` reads from the template that was built which architecture the code is for, so that nobody types it each time.
SAM_BUILD ?= .aws-sam/build
.PHONY: sam-local
sam-local: $(SAM) ## build the functions for this machine, for `sam local invoke Consumer -e events/fresh.json` beside `make cloud PORT=4566`
	.tools/sam/bin/sam build --parameter-overrides Architecture=$(MACHINE) --build-dir "$(SAM_BUILD)"
	sed 's/^    Default: arm64$$/    Default: $(MACHINE)/' "$(SAM_BUILD)/template.yaml" > "$(SAM_BUILD)/template.here"
	mv "$(SAM_BUILD)/template.here" "$(SAM_BUILD)/template.yaml"

.PHONY: test
test: setup .build/host.complete .build/$(PLATFORM).complete ## run all tests (ARGS="-k name" for some)
	.venv/bin/pytest --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)

.PHONY: build
build: .build/$(PLATFORM).complete .build/host.complete ## build the function for Lambda (.build/python3.13-arm64; RUNTIME=python3.14 ARCHITECTURE=x86_64) and for this machine (.build/host)

# What is said on the command line takes the place of all that samconfig.toml has of it, so that is said again. What a
# function runs on is always said: CloudFormation keeps a parameter that is not, whatever the build was for.
said_in_samconfig = $(shell .tools/sam/bin/python -c 'import sys, tomllib; \
	tables = tomllib.load(open(sys.argv[1], "rb"))[sys.argv[2]]; \
	said = [tables.get(each, {}).get("parameters", {}).get("parameter_overrides") for each in ("deploy", "global")]; \
	said = next(filter(None, said), []); print(said if isinstance(said, str) else " ".join(said))' $(samconfig) $(ENV))
samconfig := $(if $(WORKFLOW),samconfig.workflow.toml,samconfig.toml)
environments = $(shell sed -n 's/^\[\([a-z]*\)\.global\.parameters\]$$/\1/p' $(samconfig))
configured := --config-file $(samconfig) --config-env $(ENV)
# What make is told, else what samconfig.toml says, else the default above. $(1): the variable, $(2): the parameter.
chosen = $(2)=$(if $(filter file,$(origin $(1))),$(or $(patsubst $(2)=%,%,$(filter $(2)=%,$(said_in_samconfig))),$($(1))),$($(1)))
overrides = --parameter-overrides $(filter-out Runtime=% Architecture=%,$(said_in_samconfig)) \
	$(call chosen,RUNTIME,Runtime) $(call chosen,ARCHITECTURE,Architecture)

# boto3, and so SAM, reads only the first of these; AWS's other tools read the second.
ifndef AWS_DEFAULT_REGION
ifdef AWS_REGION
deploy: export AWS_DEFAULT_REGION = $(AWS_REGION)
endif
endif

.PHONY: deploy
deploy: $(SAM) $(if $(WORKFLOW),$(DEVELOPMENT)) ## build and deploy to AWS (ENV=default, staging or prod, as in samconfig.toml; RUNTIME=python3.14 ARCHITECTURE=x86_64; WORKFLOW=1 for the workflow beside it)
	$(if $(filter $(ENV),$(environments)),,$(error $(samconfig) has no table $(ENV): ENV is one of $(environments)))
	@# Asked before the build, which takes a minute.
	@.tools/sam/bin/python -m local.sign_in $(samconfig) $(ENV)
ifdef WORKFLOW
	consumers=$$(.venv/bin/python -m local.workflow_stack $(ENV)) && \
	.tools/sam/bin/sam build $(configured) $(overrides) && \
	.tools/sam/bin/sam deploy $(configured) $(overrides) $$consumers
else
	.tools/sam/bin/sam build $(configured) $(overrides)
	.tools/sam/bin/sam deploy $(configured) $(overrides)
endif

.PHONY: invoke
invoke: $(DEVELOPMENT) $(MINISTACK) $(SAM) $(RUNTIME_CLIENT) .build/host.complete ## run the built function once (EVENT=events/fresh.json)
	@.venv/bin/python -m local.invoke $(EVENT)

.PHONY: check
check: $(DEVELOPMENT) $(SAM) $(CHECKOV) ## check format, lint, types, import directions, template, licences and vulnerabilities
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/cfn-lint --non-zero-exit-code informational template.yaml workflow.yaml
	.venv/bin/statelint src/app/transfer.asl.json
	AWS_DEFAULT_REGION=us-east-1 .tools/sam/bin/sam validate --lint
	AWS_DEFAULT_REGION=us-east-1 .tools/sam/bin/sam validate --lint --template workflow.yaml
	.tools/checkov/bin/checkov --framework cloudformation --skip-download --compact --quiet --file template.yaml --file workflow.yaml
	.venv/bin/python -m local.supply

.PHONY: picture
picture: $(DEVELOPMENT) $(MINISTACK) $(BENCH) .build/host.complete ## draw docs/dashboard.png from the figures of a run
	.venv/bin/python -m local.figures .build/figures.json
	.tools/bench/bin/python -m local.picture .build/figures.json docs/dashboard.png

.PHONY: mutants
mutants: setup .build/host.complete ## plant known bugs, and see each one turn its tests red (BUGS="S17 lease")
	.venv/bin/python -m tests.mutants $(BUGS)

.PHONY: clean
clean: ## remove everything that was made
	rm -rf .venv .tools .build .aws-sam .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Several makes may be at work here: `sam build --parallel` and `sam sync` start one for each function. What they share is
# made by one of them at a time. Whoever wants it asks for the lock and then looks again whether it is still to be made.
# The kernel frees the lock when its holder ends, however that ends; the program `flock` is not everywhere.
locked = mkdir -p .build && $(PYTHON) -c 'import fcntl, os, sys; lock = os.open(".build/lock", os.O_RDWR | os.O_CREAT); \
	fcntl.flock(lock, fcntl.LOCK_EX); os.set_inheritable(lock, True); os.execvp(sys.argv[1], sys.argv[1:])'

$(PACKAGER): requirements/uv.txt
ifndef ALONE
	@test -n "$(PYTHON)" || { echo "No Python of 3.11 or newer was found; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	$(PYTHON) -m venv --clear .tools/uv
	.tools/uv/bin/python -m pip install --require-hashes --disable-pip-version-check -r requirements/uv.txt
	@touch $@
endif

$(DEVELOPMENT): pyproject.toml uv.lock | $(PACKAGER)
	$(UV) sync --locked --all-extras --python .tools/uv/bin/python
	@touch $@

# These pin their own botocore, boto3 or pydantic: each gets an environment of its own, so that none of it decides what we run on.
.tools/%/.complete: requirements/%.txt | $(PACKAGER)
	$(UV) venv --quiet --clear --python .tools/uv/bin/python .tools/$*
	$(UV) pip install $(if $(filter ministack,$*),--compile-bytecode) --python .tools/$*/bin/python --require-hashes -r $<
	@touch $@

# ---- The function -----------------------------------------------------------------------------------------------------

# A build's name says what it is for: this machine (host), or Lambda's runtime and architecture (python3.13-arm64).
PLATFORMS := $(patsubst platforms/%/Makefile,%,$(wildcard platforms/*/Makefile))
python = $(firstword $(subst -, ,$(1)))
# These runtimes stand on Amazon Linux 2023. Only wheels are taken, for what is compiled here would run here only.
LINUX_arm64 := aarch64-manylinux_2_28
LINUX_x86_64 := x86_64-manylinux_2_28
wheels = $(if $(filter host,$(1)),,--python-version $(patsubst python%,%,$(call python,$(1))) \
	--python-platform $(LINUX_$(lastword $(subst -, ,$(1)))))
# Lambda's runtime brings the AWS SDK and what only that needs. On this machine nothing does.
SDK := boto3 botocore s3transfer urllib3 python-dateutil six
left_out = $(if $(filter host,$(1)),,$(SDK:%=--no-emit-package %))
# Bytecode saves a cold start from compiling. It fits one version of Python, so without that one none is shipped.
interpreter = $(if $(filter host,$(1)),.tools/uv/bin/python,$(call installed,$(call python,$(1))))
installed = $(shell for python in $(1) "$$($(UV) python find --no-project $(1:python%=%) 2>/dev/null)" \
	"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1:python%=%).*/bin/$(1); do \
	$$python -c 'import sys; sys.exit("python%d.%d" % sys.version_info[:2] != "$(1)")' 2>/dev/null && echo $$python && break; done)
# A package's age says nothing once it is copied and zipped, so bytecode is trusted as it is.
compile = $(if $(call interpreter,$(1)),$(call interpreter,$(1)) -m compileall -q --invalidation-mode unchecked-hash \
	-s "$(2)" -p /var/task $(3),@echo 'No $(call python,$(1)) runs here: the build for $(1) carries no bytecode and will start slower.')

.PRECIOUS: .build/packages-%/.complete
.build/packages-%/.complete: pyproject.toml uv.lock Makefile | $(PACKAGER)
ifndef ALONE
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	$(if $(filter host $(PLATFORMS),$*),,$(error There is no build for $*: RUNTIME and ARCHITECTURE together are one of $(PLATFORMS)))
	rm -rf $(@D)
	mkdir -p $(@D)
	$(UV) export --quiet --locked --no-dev --no-emit-project $(call left_out,$*) --output-file $(@D)/requirements.txt
	$(UV) pip install --python .tools/uv/bin/python $(call wheels,$*) --only-binary :all: --target $(@D)/packages -r $(@D)/requirements.txt
	rm -rf $(@D)/packages/bin $(@D)/packages/.lock
	$(call compile,$*,$(@D)/packages,$(@D)/packages)
	@touch $@
endif

# The library without the operator's side and what is for tests, and the application. $(1): the platform, $(2): the folder to fill, whose name is
# quoted, for SAM says where it is, and the checkout may stand in a folder with a space in its name.
define assemble
	cp -R .build/packages-$(1)/packages/. "$(2)"
	cp -R src/app src/idempotent_receiver "$(2)"
	rm -rf "$(2)/idempotent_receiver/operations" "$(2)/idempotent_receiver/testing" "$(2)/idempotent_receiver/__main__.py"
	find "$(2)/app" "$(2)/idempotent_receiver" \( -name __pycache__ -o -name '.*' \) -prune -exec rm -rf {} +
	$(if $(filter host,$(1)),,@echo $(1) > "$(2)/app/built-for")
	$(call compile,$(1),$(2),"$(2)/app" "$(2)/idempotent_receiver")
endef

.build/%.complete: .build/packages-%/.complete $(shell find src -name '*.py' -o -name '*.json' -o -name '*.yaml' 2>/dev/null)
ifndef ALONE
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	@rm -rf .build/$*.part && mkdir .build/$*.part
	$(call assemble,$*,.build/$*.part)
	@rm -rf .build/$* && mv .build/$*.part .build/$* # as late as can be: a function may be running from there
	@touch $@
endif

# For measuring cold starts: the SDK as Lambda's runtime has it, and what others would deploy, packed like ours.
HOST := python3.13-$(MACHINE)
# A cloud that is named may run functions as they are built for Lambda.
ifdef LOCALSTACK_HOST
run cloud: .build/$(HOST).complete
endif
install_peer = $(UV) pip install --quiet --python .tools/uv/bin/python $(call wheels,$*) --only-binary :all: \
	--constraint requirements/bench.txt --target
.build/peer-%/.complete: requirements/bench.txt Makefile | $(PACKAGER)
	rm -rf $(@D)
	$(install_peer) $(@D)/runtime boto3
	$(install_peer) $(@D)/packages aws-lambda-powertools jmespath pydantic
	rm -rf $(@D)/*/bin $(@D)/*/.lock
	$(call compile,$*,$(@D),$(@D))
	@touch $@

.PHONY: explore
explore: $(DEVELOPMENT) ## play every schedule of small worlds (SETUPS="2x1 3x1" FAULTS=2 SECONDS=3600)
	@.venv/bin/python -m tests.simulation.explore $(SETUPS) $(FAULTS:%=--faults %) $(SECONDS:%=--seconds %) $(PROCESSES:%=--processes %)

.PHONY: simulate
simulate: $(DEVELOPMENT) ## play random worlds by seed (SEEDS=10000 FIRST=0, SEED=7 tells one, SMALL=1: many chunks)
	@.venv/bin/python -m tests.simulation.simulate $(SEEDS:%=--seeds %) $(FIRST:%=--first %) $(SEED:%=--seed %) $(if $(SMALL),--small) $(PROCESSES:%=--processes %)

.PHONY: chaos
chaos: $(DEVELOPMENT) $(MINISTACK) ## kill and freeze workers behind a lying network, and close the books (N=20000 SEED=1 SEATS=4 PROTECTION=on)
	@.venv/bin/python -m tests.chaos

.PHONY: fuzz
fuzz: $(DEVELOPMENT) ## try hostile events, bodies and records by thousands (EXAMPLES=5000)
	EXAMPLES=$(or $(EXAMPLES),5000) .venv/bin/pytest --numprocesses $(WORKERS) --dist loadgroup tests/fuzz $(ARGS)

.PHONY: bench
bench: $(BENCH) $(MINISTACK) $(if $(AGAINST),,$(if $(call installed,python3.13),.build/$(HOST).complete .build/peer-$(HOST)/.complete)) ## measure us against others in 5 minutes (FULL=1: a grid in 30; ENFORCE=0: only report; AGAINST=../old: only against that checkout of this project)
	@PYTHONPATH=src PYTHON_313=$(call installed,python3.13) .tools/bench/bin/python -m benchmarks

# The functions of workflow.yaml.
WORKFLOW_FUNCTIONS := Start Sweep Reconcile Debit Credit Receipt Refund

# What `sam build` calls by a Makefile in platforms/, with the folder to fill in ARTIFACTS_DIR.
.PHONY: build-Consumer build-Api $(WORKFLOW_FUNCTIONS:%=build-%)
ifndef ALONE
build-Consumer build-Api $(WORKFLOW_FUNCTIONS:%=build-%):
	@$(locked) $(MAKE) --no-print-directory ALONE=1 RUNTIME=$(RUNTIME) ARCHITECTURE=$(ARCHITECTURE) $@
else
build-Consumer build-Api $(WORKFLOW_FUNCTIONS:%=build-%): .build/packages-$(PLATFORM)/.complete
	$(call assemble,$(PLATFORM),$(ARTIFACTS_DIR))
endif

# -----------------------------------------------------------------------------------------------------------------------

.PHONY: lock
lock: $(PACKAGER) ## pin the newest allowed versions of everything
	$(UV) lock --upgrade
	for name in uv ministack sam runtime openapi checkov bench; do $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 \
		--no-header --no-annotate --generate-hashes requirements/$$name.in -o requirements/$$name.txt; done
