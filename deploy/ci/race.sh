#!/usr/bin/env bash
# Run tests under the race detector: race.sh PACKAGES. The detector itself crashes now and
# then beside testing/synctest (golang/go#78156): a segmentation violation in its own code,
# on the stack of synctest.Run, in one run of dozens. Packages that end like this, and with
# no test that failed, no race and no panic, are tried once more, by which those that
# passed are not run again.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT

tests() { go test -race -short -timeout 20m "$@" 2>&1 | tee "$log"; }

crashed() {
  grep -qE '^SIGSEGV: segmentation violation$|ThreadSanitizer: CHECK failed' "$log" &&
    ! grep -qE -e '--- FAIL|WARNING: DATA RACE|^panic:|^fatal error:|\[(build|setup) failed\]' "$log"
}

tests "$@" && exit
crashed || exit 1
echo "race.sh: the race detector crashed; once more"
tests "$@"
