#!/bin/sh
# Fuzz every Fuzz function of the module, one after another: fuzz.sh TIME, where
# TIME is a duration (10s) or a number of runs (1000x). With a duration the go
# command may report a run that its end cut off as a failure ("context deadline
# exceeded"), so continuous integration counts runs.
set -eu
time=${1:-10s}
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | while read -r name; do
    echo "fuzz $dir $name for $time"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 5x "$dir"
  done
done
