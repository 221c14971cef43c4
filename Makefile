# Each target does one thing. CI calls `make lint test test-short`.
# A second run does only what has changed: finished steps leave a mark in .make/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYO3_PYTHON := $(abspath $(BIN)/python)
PYTHON_SOURCES := $(shell find python/tidewire -name '*.py' -o -name '*.pyi' -o -name py.typed)
RUST_SOURCES := $(shell find crates/*/src python/src -name '*.rs' -o -name '*.sql') Cargo.toml Cargo.lock $(wildcard crates/*/Cargo.toml) python/Cargo.toml
FUZZ_SECONDS ?= 5

# A mark whose result was removed by hand no longer counts.
$(if $(wildcard $(BIN)/python),,$(shell rm -rf .make))
$(if $(wildcard python/tidewire/_tidewire*.so),,$(shell rm -f .make/extension .make/release))
$(if $(wildcard dist/local/*.whl),,$(shell rm -f .make/local-wheel))

say = @printf '\033[1m== %(%T)T %s\033[0m\n' -1 "$(1)"

.PHONY: help
help: ## Show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: wheel
wheel: .make/local-wheel ## Build a wheel for this machine into dist/local (some minutes at first)
	@ls dist/local/*.whl

.PHONY: install
install: install-place .make/local-wheel ## Install the wheel and the command tidewire into an environment of their own: PREFIX=/opt/tidewire
	$(call say,installing into $(PREFIX))
	@[ -x '$(PREFIX)/bin/python' ] || $(PYTHON) -m venv '$(PREFIX)'
	@'$(PREFIX)/bin/python' -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/local/*.whl
	@'$(PREFIX)/bin/python' -m pip install --quiet --disable-pip-version-check "$$(ls $(CURDIR)/dist/local/*.whl)[cli]"
	@'$(PREFIX)/bin/tidewire' doctor >/dev/null || { '$(PREFIX)/bin/tidewire' doctor; exit 1; }
	@printf 'installed: %s\nto use it in this shell: . %s\n' '$(PREFIX)/bin/tidewire' '$(PREFIX)/bin/activate'

# Before anything is built.
.PHONY: install-place
install-place:
	@[ -n '$(PREFIX)' ] || { echo "PREFIX is missing: call make install PREFIX=/opt/tidewire"; exit 1; }
	@[ -e '$(PREFIX)/pyvenv.cfg' ] || [ -z "$$(ls -A '$(PREFIX)' 2>/dev/null)" ] \
		|| { echo "PREFIX: $(PREFIX) has other files: name a new folder, or a virtual environment"; exit 1; }

.PHONY: demo
demo: .make/extension .make/flights ## Build, and run the demonstrations: the flights, the desk of agents, the campaigns, the orders, the clerk, and the sites
	$(call say,running the demonstration: a year of flights in one process and in three)
	@$(BIN)/python examples/flights/main.py --processes
	$(call say,running the demonstration: a desk of agents)
	@$(BIN)/python examples/desk/main.py
	$(call say,running the demonstration: races over a bingo board by workers that are killed)
	@$(BIN)/python examples/bingo/main.py
	$(call say,running the demonstration: runs until a mean is known well enough)
	@$(BIN)/python examples/precision/main.py
	$(call say,running the demonstration: orders in a folder and on NATS with workers that are killed)
	@$(BIN)/python examples/orders/main.py
	$(call say,running the demonstration: a team of agents that is killed in the middle of its conversation)
	@$(BIN)/python examples/clerk/main.py
	$(call say,running the demonstration: a burst that spills over to another site which is killed)
	@$(BIN)/python examples/two_sites/main.py
	@printf 'to watch the flights in a browser, and be asked what they are to do: make live\nto see all of it in the console of a hub: make console\n'

.PHONY: live
live: .make/extension .make/flights .make/js ## Build, and serve a page that shows the flights as they leave (examples/live)
	@cd js && npm run --silent build
	@$(BIN)/python examples/live/main.py

.PHONY: console
console: .make/extension .make/flights .make/js ## Build, and serve the console of a hub with flights, orders whose workers are killed, a desk of agents and a campaign (examples/console)
	@cd js && npm run --silent build
	@$(BIN)/python examples/console/main.py

.PHONY: test
test: test-js test-python test-rust ## Build, and pass the tests of all languages (10 minutes)
	$(call say,all tests passed)

.PHONY: test-short
test-short: test-loom test-fuzz test-attack test-demo test-wheel test-deploy docs ## A short form of each part of test-all that `make test` lacks
	@$(MAKE) --no-print-directory power RANDOM_SECONDS=2
	$(call say,short forms of the long suites passed)

.PHONY: test-all
test-all: test test-loom test-mcp fuzz attack demo wheel-check free-threaded-check histories random lint-bench deploy-check ## All of it: long histories, power cuts, kills, attacks, fuzzing, wheels (hours)
	@$(MAKE) --no-print-directory power
	@$(MAKE) --no-print-directory crashtest
	$(call say,all suites passed)

.PHONY: lint
lint: .make/dev .make/extension .make/js ## Check format, lints, types, generated files and the import table
	$(call say,rustfmt and clippy)
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --workspace --all-targets --features tidewire-engine/tokio,tidewire-node/embedded,tidewire-node/schemars,tidewire-node/opentelemetry -- -D warnings
	@for features in "" tls websocket; do cargo check --package tidewire-link --no-default-features --features "$$features"; done
	@cargo check --package tidewire-node --no-default-features
	$(call say,ruff)
	@$(BIN)/ruff check python tools examples bench crates js
	@$(BIN)/ruff format --check python tools examples bench crates js
	$(call say,Rust documentation)
	@RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --features tidewire-engine/tokio,tidewire-node/embedded,tidewire-node/schemars,tidewire-node/opentelemetry
	$(call say,mypy and stubtest)
	@cd python && ../$(BIN)/mypy
	@$(BIN)/mypy --strict --python-version 3.11 examples/typed
	@if compgen -G 'python/tidewire/*.pyi' >/dev/null; then cd python && ../$(BIN)/stubtest tidewire._tidewire --allowlist ../tools/stubtest-allowed.txt; fi
	$(call say,pyright)
	@command -v node >/dev/null || { echo "pyright needs Node.js, and there is no node: apt-get install nodejs"; exit 1; }
	@$(BIN)/pyright --project examples/typed --pythonpath $(BIN)/python
	$(call say,biome and tsc)
	@cd js && npm run --silent lint
	$(call say,generated files and the import table)
	@$(BIN)/python tools/generate.py --check
	@$(BIN)/python tools/check_imports.py
	@$(BIN)/python tools/promises.py
	$(call say,names and prose)
	@$(BIN)/python tools/check_prose.py
	$(call say,shape of the tree)
	@$(BIN)/python tools/check_shape.py

.PHONY: docs
docs: .make/docs .make/site-scripts .make/extension ## Build the documentation site, out/site/index.html; broken links and anchors are errors
	$(call say,documentation site)
	@.make/docs/bin/python tools/site/build.py

.PHONY: test-deploy
test-deploy: .make/deploy .make/extension ## Check the units, image, chart (with a helm that is there), configuration, boards and alerts of deploy/
	$(call say,deployment)
	@.make/deploy/bin/python tools/deploy_check.py --tidewire $(abspath $(BIN))/tidewire $(addprefix --helm ,$(wildcard .make/go/bin/helm))

.PHONY: deploy-check
deploy-check: .make/go/bin/helm ## The same with helm, which is built from its Go module on first use (some minutes)
	@$(MAKE) --no-print-directory test-deploy

.PHONY: lint-bench
lint-bench: ## Check that the Rust programs of the benchmarks are formatted and compile; their peers take minutes to build
	$(call say,rustfmt and cargo check of the benchmarks)
	@for package in rust rpc nats http log; do \
		cargo fmt --manifest-path bench/$$package/Cargo.toml --check; \
		cargo check --quiet --manifest-path bench/$$package/Cargo.toml --all-targets; \
	done

.PHONY: bench
bench: .make/dev .make/release ## Measure beside peers, short (under 5 minutes once built and installed)
	$(call say,measuring beside peers; the report goes to out/)
	@$(BIN)/python -m tidewire bench engine --out out
	@$(BIN)/python -m tidewire bench agents --out out
	@$(BIN)/python bench/rows.py --reports out

.PHONY: bench-rpc
bench-rpc: .make/dev .make/release ## Measure calls between processes beside peers (a quarter of an hour, and their installation)
	$(call say,measuring calls between processes beside peers; the report goes to out/)
	@$(BIN)/python -m tidewire bench rpc --out out

.PHONY: bench-campaigns
bench-campaigns: .make/dev .make/release ## Measure campaigns beside peers (half an hour, and the installation of peers and servers)
	$(call say,measuring campaigns beside peers; the report goes to out/)
	@$(BIN)/python -m tidewire bench campaigns --out out

.PHONY: bench-full
bench-full: .make/dev .make/release ## Measure beside peers, at the sizes of the workloads page
	$(call say,measuring beside peers at full size; the report goes to out/)
	@$(BIN)/python -m tidewire bench engine --full --out out
	@$(BIN)/python -m tidewire bench agents --full --out out
	@$(BIN)/python -m tidewire bench rpc --full --out out
	@$(BIN)/python -m tidewire bench campaigns --full --out out
	@$(BIN)/python -m tidewire bench streams --out out
	@$(BIN)/python -m tidewire bench http --out out
	@$(BIN)/python bench/rows.py --reports out

.PHONY: test-rust
test-rust: .make/dev $(if $(filter-out tidewire-node,$(CRATE)),,.make/extension) ## Rust tests: CRATE=tidewire-core for one crate, K=text for the tests whose path contains it
	$(call say,Rust tests)
	@$(BIN)/python tools/rust_tests.py $(if $(CRATE),--package $(CRATE)) $(K)

.PHONY: test-loom
test-loom: ## Models of the concurrent parts, in all interleavings
	$(call say,concurrency models)
	@if compgen -G 'crates/tidewire-engine/tests/loom_*.rs' >/dev/null; then \
		CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom" \
			cargo test -p tidewire-engine --release --test 'loom_*'; \
	fi

WORKERS ?= 4
RANDOM_SECONDS ?= 300

.PHONY: random
random: .make/dev .make/extension ## Random programs of one node beside an oracle, for RANDOM_SECONDS (300), on all loops, in dev mode
	$(call say,random programs for $(RANDOM_SECONDS) s)
	@$(BIN)/python python/tests/support/random_programs.py $(or $(RANDOM_FIRST),0)- --seconds $(RANDOM_SECONDS) --dev

.PHONY: test-python
test-python: .make/dev .make/extension .make/flights ## Python tests in WORKERS processes (4): K=expression or FILES=tests/streams for a part of them: folders or files
	$(call say,Python tests)
	@cd python && ../$(BIN)/python -m pytest -n $(WORKERS) $(if $(K),-k '$(K)') $(FILES)

.PHONY: flaky
flaky: .make/dev .make/extension ## Repeat tests N times (20) beside a busy processor: K=expression, FILES=tests/streams, or CRATE and K for Rust
	$(call say,$(or $(N),20) runs beside a busy processor)
	@$(BIN)/python tools/flaky.py --runs $(or $(N),20) $(if $(CRATE),--package $(CRATE)) $(if $(K),-k '$(K)') $(FILES)

.PHONY: test-js
test-js: .make/dev .make/extension .make/console .make/chromium .make/flights ## The TypeScript client: vectors, stories in virtual time, and with hubs and nodes of Python
	$(call say,tests of the TypeScript client)
	@cd js && npm run --silent build
	@cd js && npm run --silent test

.PHONY: test-mcp
test-mcp: .make/dev .make/extension .make/conformance ## The conformance suite of the Model Context Protocol, on hubs with a gateway
	$(call say,conformance suite of the Model Context Protocol)
	@$(BIN)/python tools/conformance/run.py .make/conformance

.PHONY: test-demo
test-demo: .make/dev .make/extension .make/flights ## The demonstrations on 20,000 flights and 200 races, and the benchmarks' smoke run
	$(call say,the demonstration on the first 20 000 flights)
	@$(BIN)/python examples/flights/main.py --flights 20000 --out out/flights-small.html
	$(call say,the demonstration on 200 races)
	@$(BIN)/python examples/bingo/main.py --races 200 --out out/bingo-small.html
	$(call say,the demonstration on 200 orders)
	@$(BIN)/python examples/orders/main.py --orders 200
	@$(BIN)/python examples/clerk/main.py --claims 40
	$(call say,benchmarks: smoke run)
	@$(BIN)/python -m tidewire bench engine --smoke --out out/smoke
	@$(BIN)/python -m tidewire bench campaigns --smoke --peers 'tidewire,bare loop' --out out/smoke

.PHONY: attack
attack: .make/dev .make/extension ## Attack a hub in all the ways that are known, while a good client measures (python/tests/attacks)
	$(call say,attacking a hub)
	@cd python/tests && ../../$(BIN)/python -m attacks $(NAMES)

.PHONY: attack-memory
attack-memory: .make/dev .make/extension ## The memory of a hub that clients fill, beside the formula of its bound (docs/guides/security.md)
	$(call say,filling the memory of a hub)
	@cd python/tests && ../../$(BIN)/python -m attacks --memory

.PHONY: release
release: .make/release ## Build the extension for measurements (profile release)

.PHONY: test-attack
test-attack: .make/dev .make/extension ## The dozen attacks that guard the most different things, less than half a second each
	$(call say,attacking a hub: a dozen attacks, half a second each)
	@cd python/tests && ../../$(BIN)/python -m attacks --short

.PHONY: test-fuzz
test-fuzz: ## Fuzz the parsers, the frames and the timing wheel for a few seconds each (FUZZ_SECONDS)
	$(call say,fuzzing for $(FUZZ_SECONDS) s each)
	@command -v c++ >/dev/null || { echo "libFuzzer needs a C++ compiler, and there is no c++: apt-get install g++"; exit 1; }
	@cd fuzz && unset RUSTFLAGS && for target in inflate segment subject tree wheel wire_frame wire_heads; do \
		mkdir -p corpus/$$target artifacts; \
		echo "fuzz target $$target; its log is fuzz/artifacts/$$target.log"; \
		cargo run --quiet --release --bin $$target -- -max_total_time=$(FUZZ_SECONDS) \
			-artifact_prefix=artifacts/ corpus/$$target >artifacts/$$target.log 2>&1 \
			|| { tail -n 40 artifacts/$$target.log; exit 1; }; \
		grep '^Done' artifacts/$$target.log; \
	done

.PHONY: fuzz
fuzz: .make/js ## Fuzz for a minute each, and the TypeScript client with FUZZ_INPUTS (20,000) inputs each
	@$(MAKE) --no-print-directory test-fuzz FUZZ_SECONDS=60
	@cd js && npm run --silent build && npm run --silent fuzz

.PHONY: routing
routing: .make/venv ## Play the routing simulation, and write the tables and curves of docs/guides/routing.md (half a minute)
	$(call say,routing simulation)
	@cargo run --quiet --profile fast -p tidewire-testkit --example routing | $(BIN)/python bench/routing.py

.PHONY: console-pictures
console-pictures: .make/dev .make/extension .make/console .make/chromium ## Make the pictures of the console for docs/guides/console.md
	@cd js && npx tsc -p packages/console/tsconfig.test.json && node packages/console/build/console/test/pictures.js

.PHONY: soak-js
soak-js: .make/extension .make/js ## A million messages of the TypeScript client (MESSAGES), and what its heap has grown by
	@cd js && npm run --silent build && npm run --silent soak

.PHONY: test-wheel
test-wheel: .make/dev .make/extension ## Build a wheel of this interpreter from the build of the tests, and try it in an empty environment
	$(call say,a wheel in an empty environment)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tools/wheel_check.py --short

.PHONY: wheel-check
wheel-check: .make/wheel ## Build wheel and sdist, and try them with each CPython from 3.11 to 3.13 (a quarter of an hour)
	$(call say,wheel and source distribution)
	@PATH="$(abspath .make/wheel/bin):$$PATH" $(PYTHON) tools/wheel_check.py

.PHONY: wheel-aarch64
wheel-aarch64: .make/wheel $(if $(shell command -v npm),.make/console) ## Build a wheel for Linux on aarch64 into dist/aarch64, and try it in an emulator (half an hour at first, PROFILE=fast is quicker)
	$(call say,a wheel for aarch64)
	@.make/wheel/bin/python tools/wheel_aarch64.py --profile $(or $(PROFILE),wheel)

# The interpreter is not needed: the file describes its ABI.
.PHONY: free-threaded-check
free-threaded-check: ## Check that the binding compiles for the ABI of free-threaded CPython 3.14 (some minutes at first)
	$(call say,cargo check for free-threaded CPython)
	@PYO3_CONFIG_FILE=$(abspath tools/free-threaded.txt) CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/free-threaded" \
		cargo check --locked --package tidewire-python

.PHONY: crates-check
crates-check: ## Package each crate as it would be published, and build it from its package (some minutes)
	$(call say,packages of the crates)
	@cargo package --quiet --workspace --exclude tidewire-python --exclude tidewire-testkit --exclude tidewire-examples

.PHONY: packages-check
packages-check: .make/wheel .make/local-wheel .make/js $(if $(shell command -v go),.make/go/bin/actionlint) ## Versions, contents and sizes of all packages, the base install, and the release workflow (a minute after the wheel)
	$(call say,packages of a release)
	@cd js && npm run --silent build
	@.make/wheel/bin/python tools/packages_check.py

.PHONY: deny
deny: .make/cargo-deny ## Known faults (tools/advisories.toml), licences and sources of Rust dependencies
	$(call say,dependencies of the crates)
	@cargo fetch --locked
	@$(PYTHON) tools/advisories.py --database .make/advisories
	@.make/cargo/bin/cargo-deny --offline --locked --config .make/advisories/deny.toml check

.PHONY: api
api: .make/cargo-public-api ## The public API of the crates for Rust users, beside the one that is kept in spec/rust-api
	$(call say,public API of the crates)
	@$(PYTHON) tools/public_api.py

.PHONY: histories
histories: .make/dev .make/extension ## Random histories over links for RANDOM_SECONDS (300) on each loop, from RANDOM_FIRST
	$(call say,random histories over links for $(RANDOM_SECONDS) s on each loop)
	@cd python && RANDOM_SECONDS=$(RANDOM_SECONDS) HISTORIES_STEPS=$(or $(HISTORIES_STEPS),200) ../$(BIN)/python -m pytest -q -s tests/links/test_link_histories.py

.PHONY: random-suites
random-suites: .make/dev .make/extension ## Random programs and histories with CPython 3.11 to 3.13, or SUITES_PYTHON alone (RANDOM_SECONDS)
	$(call say,random programs and histories with each interpreter)
	@$(BIN)/python tools/random_suites.py --seconds $(RANDOM_SECONDS) $(if $(SUITES_PYTHON),--python $(SUITES_PYTHON))

.PHONY: power
power: ## Losses of power on a simulated disk for RANDOM_SECONDS (300); RANDOM_SECONDS=0 RANDOM_FIRST=17 plays one again
	$(call say,losses of power for $(RANDOM_SECONDS) s)
	@RANDOM_SECONDS=$(RANDOM_SECONDS) cargo test --release -p tidewire-embedded --test stories power

.PHONY: crashtest
crashtest: .make/dev .make/extension ## SIGKILL of a process that publishes, in KILLS rounds (1,000)
	$(call say,$(or $(KILLS),1000) kills of a writer)
	@data=$$(mktemp -d) && $(BIN)/tidewire crashtest --data $$data/new --kills $(or $(KILLS),1000); status=$$?; rm -rf $$data; exit $$status

.PHONY: clean
clean: ## Remove what was built
	$(call say,removing what was built)
	@rm -rf target .make $(VENV) python/tidewire/console dist out js/node_modules js/packages/*/dist js/packages/*/build fuzz/target bench/rust/target bench/rpc/target bench/nats/target bench/http/target bench/log/target bench/pekko/target python/tidewire/*.so

.make:
	@mkdir -p .make

.make/venv: tools/requirements-build.txt | .make
	$(call say,virtual environment in $(VENV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11: call make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "$(PYTHON) can't make a virtual environment: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-build.txt
	@touch $@

# Needed by tests and lints, not by the demonstrations.
.make/dev: tools/requirements-dev.txt .make/venv
	$(call say,packages for tests and lints)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-dev.txt
	@touch $@

.make/wheel: tools/requirements-wheel.txt | .make
	$(call say,maturin and zig for wheels)
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-wheel.txt
	@touch $@

.make/docs: tools/requirements-docs.txt | .make
	$(call say,packages for the documentation site)
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-docs.txt
	@touch $@

.make/go/bin/actionlint: | .make
	$(call say,actionlint)
	@GOBIN=$(abspath $(@D)) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

.make/deploy: tools/requirements-deploy.txt | .make
	$(call say,packages for the check of the deployment)
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-deploy.txt
	@touch $@

.make/go/bin/helm: | .make
	$(call say,helm)
	@command -v go >/dev/null || { echo "helm is built with Go: apt-get install golang-go"; exit 1; }
	@GOBIN=$(abspath $(@D)) go install helm.sh/helm/v3/cmd/helm@v3.19.0

# The pages ask no other server for scripts.
.make/site-scripts: tools/site/scripts.sha256 | .make
	$(call say,scripts of the documentation site)
	@command -v npm >/dev/null || { echo "the site needs npm for its diagrams: apt-get install nodejs npm"; exit 1; }
	@mkdir -p $@
	@cd $@ && npm pack --silent mermaid@11.17.2 iframe-worker@1.0.4 >/dev/null
	@cd $@ && tar -xzOf mermaid-11.17.2.tgz package/dist/mermaid.min.js >mermaid.js && rm mermaid-*.tgz
	@cd $@ && tar -xzOf iframe-worker-1.0.4.tgz package/shim/index.js >iframe-worker.js && rm iframe-worker-*.tgz
	@cd $@ && sha256sum --quiet --check ../../$<
	@touch $@

.make/extension: .make/venv $(RUST_SOURCES) python/pyproject.toml
	$(call say,building the extension with maturin)
	@cd python && PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) ../$(BIN)/maturin develop --profile fast --quiet
	@rm -f .make/release && touch $@

# What benchmarks measure: they refuse the build for tests. The next `make test` builds that again.
.make/release: .make/venv $(RUST_SOURCES) python/pyproject.toml
	$(call say,building the extension for measurements, with link-time optimization: some minutes)
	@cd python && PIP_QUIET=1 VIRTUAL_ENV=$(abspath $(VENV)) ../$(BIN)/maturin develop --release --quiet
	@rm -f .make/extension && touch $@

# One wheel serves each CPython from 3.11 on. Unlike the wheels of tools/wheel_check.py, it is for machines like this one.
# A machine without Node.js builds a wheel without the console.
.make/local-wheel: .make/venv $(if $(shell command -v npm),.make/console) $(RUST_SOURCES) $(PYTHON_SOURCES) python/pyproject.toml
	$(call say,building a wheel with maturin)
	@rm -rf dist/local
	@cd python && ../$(BIN)/maturin build --profile fast --quiet --out ../dist/local
	@touch $@

# Both are built here, which takes some minutes. The version that reads what rustdoc says goes with that of the compiler.
.make/cargo-deny: | .make
	$(call say,cargo-deny)
	@cargo install --quiet --locked --root .make/cargo cargo-deny@0.20.2
	@touch $@

.make/cargo-public-api: | .make
	$(call say,cargo-public-api)
	@cargo install --quiet --locked --root .make/cargo cargo-public-api@0.52.0
	@touch $@

.make/js: js/package.json js/package-lock.json | .make
	$(call say,packages of the TypeScript client)
	@command -v npm >/dev/null || { echo "the TypeScript client needs Node.js 20 and npm: apt-get install nodejs npm"; exit 1; }
	@cd js && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

# The suite needs Node.js 22, which comes with it.
.make/conformance: tools/conformance/package.json tools/conformance/package-lock.json | .make
	$(call say,conformance suite of the Model Context Protocol, from npm)
	@command -v npm >/dev/null || { echo "the conformance suite needs npm: apt-get install nodejs npm"; exit 1; }
	@mkdir -p $@ && cp $^ $@/
	@cd $@ && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

# The page of the operator console, in the Python package.
.make/console: .make/js $(wildcard js/packages/console/*.* js/packages/console/*/*.* js/packages/console/src/*/*.*) $(shell find js/packages/client/src -name '*.ts')
	$(call say,building the console)
	@cd js && npm run --silent build
	@touch $@

.make/chromium: js/scripts/chromium.sh | .make
	$(call say,Chromium for tests in a browser)
	@js/scripts/chromium.sh
	@touch $@

.make/flights: .make/venv $(wildcard examples/flights/requirements.txt)
	$(call say,fetching the flights)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r examples/flights/requirements.txt
	@touch $@
