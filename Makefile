# The commands of the house. Every target installs what it needs first (scripts/setup), never asks, and does nothing
# the second time that it did the first.

CARGO ?= cargo
NPM ?= npm
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))

# Where rustup puts cargo, for a shell that has not read its profile since.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The demonstration, the benchmarks, `make soak` and `make vm` take the binary that is shipped from here. `make test` takes
# the one of the development profile instead (below). Set by the recipe and not by the caller's environment, so that what
# was just built is what is tested; `make test RINGWALL_BIN=…` still overrides.
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
	@# One build of the dependencies serves the tests and the binary, so both are asked for at once.
	$(CARGO) build --workspace --bins --tests
	@scripts/suites

# With debug assertions and overflow checks, which the shipped one has not; a panic ends both. `make soak` tries the other.
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

check: ## formatting, lints, and the dependency rules of deny.toml
	@scripts/setup check
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --features ringwall-fuzz/programs -- -D warnings
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

# The console, which the binary carries. Made when one of its sources is newer; cargo alone never needs Node.
WEB_SOURCES := $(shell find web/src web/public -type f) web/index.html web/package.json web/tsconfig.json web/vite.config.ts

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	cd web && $(NPM) run --silent build
	@touch $@

web/node_modules/.installed: web/package-lock.json
	cd web && $(NPM) ci --no-audit --no-fund --loglevel=error
	@touch $@
