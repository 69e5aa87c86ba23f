#!/usr/bin/env bash
# Runs all tests, also after one of them failed. Then those that failed run once more, by themselves: what passes then is
# named as unsteady, which is a defect of the test or of the program, but none of the change at hand. Ends with how many
# tests passed, failed and were left out. With arguments, which `cargo test` gets, it runs what they name.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
log=$logs/all
# Who is started with `&` by a shell has no interrupts, and tests wait for what they interrupt.
cargo=(env --default-signal=HUP,INT,QUIT "${CARGO:-cargo}")
# Many tests wait at times. With one thread for each core, cores would be idle.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))}

# Runs some test binaries, all of them that are named by the arguments.
run() { "${cargo[@]}" test --workspace --no-fail-fast "$@" 2>&1; }

status=0
if [ $# -gt 0 ]; then
    run "$@" | tee "$log" || status=1
elif run --no-run | tee "$log"; then
    # Cargo runs one binary after the other, and at the end of each some threads wait for its last test. So there are two
    # halves, told apart by first letters; what the second one says follows when it has ended.
    run --lib --bins --test '[o-z]*' > "$logs/second" &
    run --test '[a-n]*' | tee "$logs/first" || status=1
    wait $! || status=1
    cat "$logs/second"
    run --doc | tee "$logs/examples" || status=1
    cat "$logs"/{first,second,examples} > "$log"
else
    status=1
fi

# The tests that libtest names as failed, and cargo's words for the binaries they are in: "-p tarnfs --test mounting".
failed() { sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$1" | sort -u; }
binaries() { sed -n 's/^    `\(-p .*\)`$/\1/p' "$1" | sort -u; }

# Runs a test binary again, or only these of its tests.
again() {
    local binary=$1 names=("${@:2}")
    # For one package alone, cargo would build all others again, with other features.
    case $binary in *' --test '*) binary="--workspace --test ${binary##* }" ;; esac
    # shellcheck disable=SC2086 # several words
    "${cargo[@]}" test $binary -- ${names[0]:+--exact "${names[@]}"} 2>&1 < /dev/null | tee "$log.again"
    passed=${PIPESTATUS[0]}
}

unsteady=()
mapfile -t names < <(failed "$log")
# A binary that ended before its last test has not named all that failed: all of it runs again. Cargo says so of every
# end but that of libtest.
grep -q "process didn't exit successfully" "$log" && names=()
# So it is where a name could not be told from what a test printed.
told=$(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
[ "$told" = "${#names[@]}" ] || names=()
if [ "$status" != 0 ] && [ -n "$(binaries "$log")" ]; then
    status=0
    while IFS= read -r binary; do
        printf '\n%s failed; it runs again, by itself\n' "$binary"
        again "$binary" "${names[@]}"
        # One that ended before it could name a test that failed runs as a whole.
        grep -q '^running [1-9]' "$log.again" || again "$binary"
        if [ "$passed" = 0 ]; then
            unsteady+=("$binary")
        else
            status=1
        fi
    done < <(binaries "$log")
fi

printf '\nAll test binaries together: '
sed -n 's/^test result: .*\. \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" |
    awk '{ passed += $1; failed += $2; ignored += $3 } END { printf "%d passed; %d failed; %d ignored\n", passed, failed, ignored }'
failed "$log" | sed 's/^/    failed: /'
for binary in "${unsteady[@]}"; do printf 'UNSTEADY: %s passed when it ran again\n' "$binary"; done
exit "$status"
