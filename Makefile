# The two commands that matter: `make demo` and `make test`. `make bench` compares with the peers.

CARGO ?= cargo

.PHONY: demo build test lint bench bench-small fuzz

build:
	$(CARGO) build --release

# Builds, makes an archive of real files, mounts it, lists and reads from it, unmounts.
demo: build
	./tests/demo.sh $${CARGO_TARGET_DIR:-target}/release/tarnfs

# All tests. What they need beyond Rust and a C compiler is installed by the script.
test:
	./tests/prepare.sh
	TARNFS_PEERS="$${TARNFS_PEERS:-$(CURDIR)/target/peers}" $(CARGO) test --workspace --no-fail-fast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# All programs on the same files; bench/README.md says how long it takes and where the results go.
bench: build
	./bench/run.py

bench-small: build
	./bench/run.py --small
