package check

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// A search that finds no order and cannot exclude one ends, and says so; one
// that finds it in time is not disturbed by the bound.
func TestSearchIsBounded(t *testing.T) {
	var ops []porcupine.Operation
	add := func(write bool, value, call, back int64) {
		ops = append(ops, porcupine.Operation{Input: register{write: write, value: value, call: call, back: back}, Call: call, Return: back})
	}
	// Twenty commits at a time have two million orders of subsets. What is read
	// after them excludes all.
	const many = 20
	for i := range int64(many) {
		add(true, i, 0, 10)
	}
	add(false, 3, 11, 12)
	if got := judge(registerModel, ops); got != porcupine.Ok {
		t.Errorf("a history with an order is %s", got)
	}
	for i := range int64(40) {
		add(true, many+i, 0, 10)
	}
	add(false, 4, 13, 14)
	if got := judge(registerModel, ops); got != porcupine.Unknown {
		t.Errorf("a history that takes too long is %s", got)
	}
}
