# The two commands that matter: `make demo` and `make test`. `make bench` compares with the peers.

CARGO ?= cargo

.PHONY: demo build test smoke lint bench bench-small fuzz

build:
	$(CARGO) build --release

# Builds, makes an archive of real files, mounts it, lists and reads from it, unmounts.
demo: build
	./tests/demo.sh $${CARGO_TARGET_DIR:-target}/release/tarnfs

# All tests. What they need beyond Rust and a C compiler is installed by the script.
test:
	./tests/prepare.sh
	CARGO="$(CARGO)" TARNFS_PEERS="$${TARNFS_PEERS:-$(CURDIR)/target/peers}" ./tests/run.sh

# A short run of each fuzz target, on stable Rust. `make test` runs fewer inputs. (For one package alone, cargo would
# build all others again, with other features.)
smoke:
	TARNFS_SMOKE_RUNS=1000 $(CARGO) test --workspace --test damage smoke::

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@! grep -rnE --include='*.rs' '^.{121,}$$' crates tests fuzz | grep -E ':[0-9]+: *//' || \
		{ echo 'comment lines end at 120 columns'; false; }

# All programs on the same files; bench/README.md says how long it takes and where the results go.
bench: build
	./bench/run.py

bench-small: build
	./bench/run.py --small
