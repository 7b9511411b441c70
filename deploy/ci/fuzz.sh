#!/bin/sh
# Fuzz every Fuzz function of the module, one after another: fuzz.sh TIME
set -eu
time=${1:-10s}
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | while read -r name; do
    echo "fuzz $dir $name for $time"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$dir"
  done
done
