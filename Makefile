# Bywash: building, showing, checking, installing.
#
#   make demo       build, and see an unmodified program with the kernel and with bywash; as root, power cuts too
#   make test       everything that is tested, as CI does it
#   make test-quick format, lints and unit tests of the crates that differ from the last commit or BASE=origin/main
#   make test-long  the tests and benches that take minutes each, with more rounds than `make test` gives them
#   make build      target/release/bywash, its library beside it, man pages and completions
#   make install    PREFIX=/usr/local, LIBDIR=PREFIX/lib (the C library), SYSCONFDIR=/etc, DESTDIR= for packagers;
#                   `make uninstall` removes it again
#   make package    Debian packages, a tarball and the Python wheel, in target/package
#   make package-test  installs each of them in a Debian root of its own and runs the examples there
#   make fuzz       inputs made up by a fuzzer; FUZZ_SECONDS=36000 FUZZ_TARGETS=path for a night of one target
#   make bench-peers  the rivals of `bywash bench ipc` that are built apart (iceoryx2), where they can be
#   make page       the planner's page, one file: target/page/index.html; with programs where gcc-riscv64-linux-gnu is
#   make check      format, lints, documentation, words of comments and commits, licences, spelling
#   make packages   the Debian packages that the tests and benches need
#
# Each target does its own set-up: as root it installs the Debian packages that are missing, else it says
# which ones to install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
SYSCONFDIR ?= /etc
DESTDIR ?=
CARGO ?= cargo

# rustup puts cargo here; a shell that has not been started anew does not know.
export PATH := $(PATH):$(HOME)/.cargo/bin

target := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
release := $(target)/release
# What the tests run.
debug := $(target)/debug
# What is tested and linted besides the default features.
features = --features bywash-container/async,bywash-channel/async,bywash-device/testing,bywash-nbd/tls,bywash-nvme/testing,bywash-server/testing,bywash-accelerator/cuda,bywash-flow/accelerator,bywash-flow/cuda,bywash-flow/display,bywash-flow/reliable,bywash-flow/sound$(if $(has_page),$(comma)bywash-cli/page)
tools := $(target)/tools
# The launcher, the preloaded library and the recorder: a workspace of their own.
freestanding := --manifest-path freestanding/Cargo.toml --target-dir $(target)
# The planner's page, which the command has in it where it can be made. Looked for each time: it is made on the way.
page := $(target)/page/index.html
has_page = $(shell test -e $(page) && echo yes)
page_feature = $(if $(has_page),--features bywash-cli/page)
comma := ,
# Environment for building what is published: the folders of whoever builds are not in it, so that the same sources give
# the same files in any folder.
registry := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src
published = CARGO_BUILD_RUSTFLAGS="--remap-path-prefix=$(CURDIR)=/usr/src/bywash \
  --remap-path-prefix=$(registry)=/usr/src/crates \
  --remap-path-prefix=$(shell rustc --print sysroot)/lib/rustlib/src/rust=/usr/src/rust" \
  CFLAGS="$(CFLAGS) -ffile-prefix-map=$(registry)=/usr/src/crates"

# ---- building ---------------------------------------------------------------------------------------

.PHONY: build page generated
# One after the other: crates that were built together would have the features that any of them asks for.
build: page
	scripts/packages build
	$(published) $(CARGO) build --release --locked -p bywash-cli $(page_feature)
	$(published) $(CARGO) build --release --locked -p bywash-capi
	$(published) $(CARGO) build --release --locked $(freestanding)
	$(MAKE) --no-print-directory generated

# What computes in it is compiled for browsers, for which the toolchain needs a target that is fetched where that can be
# done. A page that was made before stays if it cannot.
engine := wasm32-unknown-unknown
page_engine := $(target)/page/engine.gz
# Programs of the page, or the reason why there are none beside it.
page_programs := $(target)/page/programs.gz
page:
	@scripts/page-programs $(page_programs)
	@sysroot=$$(rustc --print sysroot); \
	if [[ -d $$sysroot/lib/rustlib/$(engine) ]] || reason=$$(rustup target add $(engine) 2>&1); then \
	  $(CARGO) rustc --quiet --locked --profile page-engine --target $(engine) -p bywash-page --lib --crate-type cdylib; \
	  gzip -9nc $(target)/$(engine)/page-engine/bywash_page.wasm > $(page_engine); \
	  $(CARGO) run --quiet --locked -p bywash-page -- web/page $(page_engine) $(page_programs) $(page); \
	else \
	  echo "page: left out, since $(engine) cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

generated:
	$(release)/bywash man --out $(release)/man/man1
	mkdir -p $(release)/completions
	$(release)/bywash completions bash > $(release)/completions/bywash
	$(release)/bywash completions zsh > $(release)/completions/_bywash
	$(release)/bywash completions fish > $(release)/completions/bywash.fish

# ---- installing -------------------------------------------------------------------------------------

# What is installed, laid out by scripts/tree, with the script that installs it (dist/install).
tree := $(target)/tree
install_options = --prefix=$(PREFIX) --destdir=$(DESTDIR)

.PHONY: install uninstall
install:
	@[[ -e $(release)/completions/bywash.fish ]] || $(MAKE) --no-print-directory build
	scripts/tree $(release) $(tree)
	$(tree)/install $(install_options) --libdir=$(LIBDIR) --sysconfdir=$(SYSCONFDIR)

# A configuration that was changed stays.
uninstall:
	dist/install --uninstall $(install_options)

# ---- packaging --------------------------------------------------------------------------------------

# Times in packages are those of the last commit, so that the same commit gives the same packages.
.PHONY: package package-test
package: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct)
# What is published has no library under the LGPL in it.
package: export PAGE_PROGRAMS := no
package: build
	scripts/packages package
	scripts/tree $(release) $(tree)
	@if $(python_tools_ready); then \
	  rm -rf $(wheels)/release; \
	  $(published) $(venv)/bin/maturin build --quiet --release --locked -m python/Cargo.toml --out $(wheels)/release; \
	else \
	  echo "package: the Python wheel is left out, since its tools cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	  rm -rf $(wheels)/release; mkdir -p $(wheels)/release; \
	fi
	scripts/package $(tree) $(release) $(wheels)/release $(target)/package

# Each package in a Debian root that has nothing else.
package-test:
	@if reason=$$(scripts/packages package-test 2>&1); then \
	  scripts/package-test $(target)/package; \
	else \
	  echo "package-test: left out, since its tools cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

# ---- showing ----------------------------------------------------------------------------------------

.PHONY: demo
demo:
	scripts/packages demo
	@$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked -p bywash-power
	scripts/demo $(release)/bywash $(release)/bywash-power

# ---- checking ---------------------------------------------------------------------------------------

.PHONY: check format clippy docs words subjects publishable licences advisories spelling
check: format clippy docs words subjects publishable licences advisories spelling

format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path freestanding/Cargo.toml --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) fmt --manifest-path bench/iceoryx2/Cargo.toml --check

# The fuzz targets are a workspace of their own. To look at them needs no libFuzzer, which takes long to compile.
clippy_fuzz := CUSTOM_LIBFUZZER_PATH=/dev/null CARGO_TARGET_DIR=$(target) \
  $(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings

# The C library by itself has fewer features than the workspace, so other items of the crates are unused in it.
clippy:
	$(CARGO) clippy --locked --workspace --all-targets $(features) -- -D warnings
	$(CARGO) clippy --locked -p bywash-capi -- -D warnings
	$(CARGO) clippy --locked $(freestanding) -- -D warnings
	$(clippy_fuzz)

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps $(features)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps $(freestanding)

# The version that these checks were written for. Unoptimised: it runs for a second and builds in two minutes.
deny_version := 0.20.2
deny := $(tools)/bin/cargo-deny

$(deny):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --root $(tools) cargo-deny@$(deny_version)

licences: $(deny)
	$(deny) --log-level warn --locked check licenses bans sources
	$(deny) --log-level warn --locked --manifest-path freestanding/Cargo.toml check licenses bans sources
	$(deny) --log-level warn --locked --manifest-path fuzz/Cargo.toml check licenses bans sources
	$(deny) --log-level warn --locked --manifest-path bench/iceoryx2/Cargo.toml check licenses bans sources

# Known holes are in a database on the network, which not every machine reaches.
advisories: $(deny)
	@if reason=$$($(deny) fetch db 2>&1); then \
	  $(deny) --log-level warn --locked check --disable-fetch advisories; \
	  $(deny) --log-level warn --locked --manifest-path fuzz/Cargo.toml check --disable-fetch advisories; \
	  $(deny) --log-level warn --locked --manifest-path bench/iceoryx2/Cargo.toml check --disable-fetch advisories; \
	else \
	  echo "advisories: not checked, since their database cannot be fetched: $$(tail -n 1 <<< "$$reason")"; \
	fi

# Doc comments that begin with a riddle, sections that name no error, interfaces that differ from docs/api, circles of
# modules; subjects of commits that are too long.
words:
	$(CARGO) test --quiet --locked -p bywash-support --test house

subjects:
	scripts/subjects

# Each crate that is published can be packaged: all that it needs is published, too, and no file is missing.
published_crates = $(shell sed -n 's|^name = "\(bywash.*\)"|-p \1|p' $$(grep -l '^publish = true' crates/*/Cargo.toml))
publishable:
	$(CARGO) package --quiet --locked --offline --allow-dirty --no-verify $(published_crates)

spelling:
	scripts/packages spelling
	codespell

# ---- testing ----------------------------------------------------------------------------------------

.PHONY: packages test parts note-machine nothing-left built unit waiting programs cores browser python loom miri fuzz fuzz-random bench-peers bench-quick
packages:
	scripts/packages test

# Unit tests of the crates that differ from BASE, with their features; for the rest of their tests: cargo test -p CRATE.
.PHONY: test-quick test-long
BASE ?= HEAD
changed = $(shell scripts/changed $(BASE))
changed_flags = $(foreach crate,$(changed),-p $(crate) $(foreach feature,$(filter $(crate)/%,$(subst $(comma), ,$(features))),--features $(feature)))
test-quick: format
	@if [[ -z "$(changed)" ]]; then \
	  echo "test-quick: no crate differs from $(BASE)"; \
	else \
	  set -x; \
	  $(CARGO) clippy --locked --all-targets $(changed_flags) -- -D warnings; \
	  $(CARGO) test --locked --lib --bins $(changed_flags); \
	fi

# What chance finds in minutes: call sequences against the kernel, kills, power cuts, fuzzers' inputs, all rows of the bench
# of flows.
test-long: package package-test bench-peers
	BYWASH_MODEL_SECONDS=600 $(CARGO) test --locked --workspace $(features) -- model
	BYWASH_STRESS_ROUNDS=2000 $(CARGO) test --locked --workspace $(features) -- kill
	BYWASH_POWER_CUTS=4000 $(CARGO) test --locked -p bywash-power --test cuts -- model sqlite
	BYWASH_POWER_CUTS=200 $(CARGO) test --locked -p bywash-power --test cuts -- berkeley_db mariadb postgresql rocksdb
	FUZZ_SECONDS=60 $(MAKE) --no-print-directory fuzz
	BYWASH_ALL_BARS=1 $(CARGO) test --locked -p bywash-sim --test papers -- --nocapture
	$(CARGO) test --locked -p bywash-cli --test cli -- --ignored --nocapture a_stream_of_an_hour
	$(release)/bywash bench ipc --quick
	$(release)/bywash bench flow

# What the tests mount, attach, start or write outside of target/ is gone when they end: the last step fails if not.
# The variable marks every process of this run.
before := $(target)/machine-before
test: export TESTS_OF_BYWASH := $(shell echo $$$$-$$(date +%s))
test: packages note-machine parts nothing-left
# The first list builds what all others use, in the common folder, which only one build at a time can use; the second one
# begins with what builds in folders of its own. Much of what the tests do is waiting. What `words` does is one of the
# tests of `unit`.
parts: page
	scripts/side-by-side "format subjects publishable spelling unit cores" \
	  "licences advisories miri loom fuzz-random clippy docs browser" \
	  "programs python bench-quick" \
	  "waiting"

note-machine:
	mkdir -p $(target)
	scripts/left-behind note $(before)

nothing-left:
	scripts/left-behind check $(before)

# What the tests run: the command, its library, the C library. With the tests, whose dependencies would else have all
# crates in common built a second time, with their features.
# The crate of the Python package has no tests in Rust, and is built by `python`.
tested := --workspace --exclude bywash-python
built:
	$(CARGO) build --locked $(freestanding)
	$(CARGO) build --locked $(tested) --all-targets $(features)

# Tests that wait more than they compute: for guests, for power cuts, for peers that die, and for the command.
waiting_tests := cli cuts direct disk display guest keeper kill mutants nvme recorder serve ublk
waiting: built
	BYWASH_BUILT=1 $(CARGO) test --locked $(tested) --no-fail-fast $(features) $(waiting_tests:%=--test %)

# All other tests, but those of `programs`, and the examples in documentation.
unit_tests = $(filter-out $(waiting_tests),$(shell scripts/test-names bywash-behaviour bywash-programs))
tested_unit = $(tested) --exclude bywash-behaviour --exclude bywash-programs --no-fail-fast $(features)
unit: built
	export BYWASH_BUILT=1; status=0; \
	$(CARGO) test --locked $(tested_unit) --lib --bins $(unit_tests:%=--test %) || status=$$?; \
	$(CARGO) test --locked $(tested_unit) --doc || status=$$?; \
	exit $$status

# What clients see of a device server, on two cores, of which every machine has enough: the behaviour of the server, its clients
# and its exports. The same of the command: BYWASH_TEST_CORES=2 cargo test -p bywash-cli --test cli -- serve
two_cores := --test serve --test server --test served --test disk
cores: built
	BYWASH_BUILT=1 BYWASH_TEST_CORES=2 $(CARGO) test --locked $(tested) --no-fail-fast $(features) $(two_cores)

# Programs under `bywash run`: the cases of tests/behaviour, and programs that others wrote. Chosen by the names of their
# tests, with the features of the whole workspace, so that nothing is built anew.
program_tests = $(foreach test,$(wildcard tests/behaviour/tests/*.rs tests/programs/tests/*.rs),--test $(basename $(notdir $(test))))
programs: built
	BYWASH_BUILT=1 $(CARGO) test --locked $(tested) --no-fail-fast $(features) $(program_tests)

# The planner's page in Debian's Chromium, driven by what npm fetches where that can be done, and in Debian's Firefox where
# that is installed. Screenshots are left in target/page/shots.
node_20 := node -e 'if (parseInt(process.versions.node) < 20) { console.log("Node.js 20 is needed"); process.exit(1); }'
browser: built
	@if [[ -z "$(has_page)" ]]; then \
	  echo "browser: left out, since there is no page"; \
	elif reason=$$({ $(node_20) && npm ci --silent --no-audit --no-fund --prefix web/tests; } 2>&1); then \
	  PAGE_COMMAND=$(debug)/bywash PAGE_OUT=$(target)/page/shots node --experimental-websocket --test web/tests/page.test.js web/tests/firefox.test.js; \
	else \
	  echo "browser: left out, since its tools cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

# The Python package as somebody gets it who installs it, with the command as its device server. What builds and tests
# it is kept in an environment of its own, fetched where that can be done. PYTHON: the interpreter, 3.11 or later.
PYTHON ?= python3
python_tools := python/tests/requirements.txt
venv := $(target)/python-venv
wheels := $(target)/wheels
make_venv := $(PYTHON) -m venv --clear $(venv) && $(venv)/bin/pip install --quiet -r $(python_tools) && \
  cp $(python_tools) $(venv)/tools
python_tools_ready = cmp -s $(python_tools) $(venv)/tools || reason=$$({ $(make_venv); } 2>&1)

python: built
	@if $(python_tools_ready); then \
	  rm -f $(wheels)/bywash-*.whl; \
	  $(venv)/bin/maturin build --quiet --profile dev --locked -m python/Cargo.toml --out $(wheels); \
	  $(venv)/bin/pip install --quiet --force-reinstall --no-deps --no-index $(wheels)/bywash-*.whl; \
	  $(venv)/bin/python -m mypy.stubtest bywash --concise --mypy-config-file python/pyproject.toml \
	    --allowlist python/tests/stubtest-allowlist --ignore-unused-allowlist; \
	  BYWASH_COMMAND=$(debug)/bywash $(venv)/bin/pytest -q python; \
	else \
	  echo "python: left out, since its tools cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

# Every interleaving of what threads do to one another, where a crate has such tests. Their own target
# folder: all else would have to be built anew with and without the flag.
with_loom_tests = $(shell grep -rlE '^ *mod loom_tests' crates/*/src | cut -d/ -f2 | sort -u)
loom:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(target)/loom \
	  $(CARGO) test --locked --profile explore $(foreach crate,$(with_loom_tests),-p bywash-$(crate)) --lib loom_tests

# The unsafe code that Miri can run: what needs no kernel. It comes with a nightly toolchain, which is fetched where
# that can be done.
miri:
	@if reason=$$(rustup toolchain install nightly --profile minimal --component miri --component rust-src 2>&1); then \
	  export CARGO_TARGET_DIR=$(target)/miri; \
	  cargo +nightly miri test --locked -p bywash-link --lib -- ring:: spin_lock; \
	else \
	  echo "miri: left out, since it cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

# Random inputs for the ends that a lying peer can reach, two seconds a target: what broke today and is hit at once. To build
# the targets for a fuzzer takes as long as half of the unit tests.
fuzz-random:
	scripts/fuzz --random

# Inputs that a fuzzer makes up, for the same targets: four seconds each; for more see scripts/fuzz. It builds with cargo
# and the flags of cargo-fuzz: that command would have to be built first and adds nothing that is used here. Those who have
# it can use it, fuzz/ is laid out as it wants.
fuzz:
	scripts/packages fuzz
	@if reason=$$(rustup toolchain install nightly --profile minimal 2>&1); then \
	  scripts/fuzz $(FUZZ_TARGETS); \
	else \
	  echo "fuzz: left out, since it cannot be installed: $$(tail -n 1 <<< "$$reason")"; \
	fi

# iceoryx2 as published, for `bywash bench ipc`: a program beside the command, since it needs libclang. Where it cannot be
# built, the reason is kept there for the rows of the bench.
iceoryx2 := $(release)/bywash-bench-iceoryx2
bench-peers:
	@mkdir -p $(release); \
	if reason=$$({ scripts/packages bench-peers && \
	    $(CARGO) build --release --locked --manifest-path bench/iceoryx2/Cargo.toml --target-dir $(target)/iceoryx2; } 2>&1); then \
	  rm -f $(iceoryx2).reason; cp $(target)/iceoryx2/release/$(notdir $(iceoryx2)) $(release); \
	else \
	  rm -f $(iceoryx2); tail -n 1 <<< "$$reason" > $(iceoryx2).reason; \
	  echo "bench-peers: iceoryx2 left out, since it cannot be built: $$(tail -n 1 <<< "$$reason")"; \
	fi

# Whether the benches work, not how fast anything is.
bench-quick: built
	$(debug)/bywash bench run --quick --pairs 1
	$(debug)/bywash bench log --quick --pairs 1
	$(debug)/bywash bench ipc --quick --pairs 1
	$(debug)/bywash bench flow --quick --pairs 1
	$(debug)/bywash bench plan --quick --pairs 1
	$(debug)/bywash bench serve --quick --pairs 1
	$(debug)/bywash bench display --quick --pairs 1
