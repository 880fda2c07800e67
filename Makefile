# Every target first installs what it needs (scripts/setup), asks no questions, and does not repeat work that is done.

CARGO ?= cargo
NPM ?= npm
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))

# rustup's directory, for a shell that was started before rustup was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The binary under test: the release build, for `make test` the debug build (below). The environment does not override it,
# so that the binary just built is the one tested; `make test RINGWALL_BIN=…` does.
export RINGWALL_BIN := $(TARGET_DIR)/release/ringwall

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test soak vm bench check fuzz setup build

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build, show a command that works in a box and one that is stopped, then serve until Ctrl-C
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@scripts/demo
	@echo
	@$(RINGWALL_BIN) serve

test: ## every test, with the short forms of races, leaks and crashes
	@scripts/setup test
	@$(MAKE) --no-print-directory web/dist/index.html
	@# One command, so that the tests and the binary share one build of the dependencies.
	$(CARGO) build --workspace --bins --tests
	@scripts/suites

# The debug build has assertions and overflow checks. `make soak` tests the release build.
test: export RINGWALL_BIN := $(TARGET_DIR)/debug/ringwall

soak: ## every test on the release binary, with the long forms of races, leaks and crashes; takes long
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	RINGWALL_SOAK=1 $(CARGO) test --workspace
	@$(MAKE) --no-print-directory vm

vm: ## the binary on a second kernel, with cgroup version 2, in an emulated machine
	@scripts/setup vm
	@$(MAKE) --no-print-directory build
	@tests/vm/run

bench: ## measure side by side with fork+exec, bubblewrap and docker
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	$(CARGO) run --release --package bench -- $(BENCH_ARGS)

check: ## formatting, lints, types of the console, and the dependency rules of deny.toml
	@scripts/setup check
	@$(MAKE) --no-print-directory web/node_modules/.installed
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --features ringwall-fuzz/programs -- -D warnings
	cd web && $(NPM) run --silent check
	@scripts/deny

fuzz: ## fuzz one parser: make fuzz TARGET=zip (needs a nightly toolchain and cargo-fuzz)
	@rustup run nightly rustc --version >/dev/null 2>&1 || { echo "make fuzz needs a nightly toolchain: rustup toolchain install nightly" >&2; exit 1; }
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "make fuzz needs cargo-fuzz: cargo install cargo-fuzz" >&2; exit 1; }
	@test -n "$(TARGET)" || { echo "name a target: make fuzz TARGET=…, one of:" $(notdir $(wildcard fuzz/corpus/*)) >&2; exit 2; }
	$(CARGO) +nightly fuzz run --fuzz-dir fuzz --features programs $(TARGET)

setup: ## install what all the other targets need (each also installs its own part)
	@scripts/setup test
	@scripts/setup check
	@scripts/setup bench
	@scripts/setup vm

build: web/dist/index.html ## the release binary, target/release/ringwall, with the console in it
	$(CARGO) build --release --package ringwall

# The console, which is embedded in the binary. Built if one of its sources is newer; cargo itself needs no Node.
WEB_SOURCES := $(shell find web/src web/public -type f) web/index.html web/package.json web/tsconfig.json web/vite.config.ts

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && $(NPM) run --silent build
	@touch $@

web/node_modules/.installed: web/package-lock.json
	cd web && $(NPM) ci --no-audit --no-fund --loglevel=error
	@touch $@
