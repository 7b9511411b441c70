package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"

	"ponor/jepsen/cluster"
	"ponor/jepsen/nemesis"
	"ponor/jepsen/workload"
)

// cell is a workload with some faults.
type cell struct {
	Workload string   `json:"workload"`
	Faults   []string `json:"faults"`
	Tiny     bool     `json:"tiny,omitempty"`
}

func (c cell) String() string {
	s := c.Workload + "/" + strings.Join(c.Faults, ",")
	if c.Tiny {
		s += " tiny"
	}
	return s
}

// rates are operations a second of workloads that would need a machine of their own.
var rates = map[string]int{"queue": 200, "moves": 200, "offsets": 100, "retention": 150, "verify": 1000}

// args are those of 'ponor jepsen run'.
func (c cell) args() []string {
	list := []string{"--workload", c.Workload, "--nemesis", strings.Join(c.Faults, ",")}
	if n := rates[c.Workload]; n > 0 {
		list = append(list, "--rate", fmt.Sprint(n))
	}
	if c.Tiny {
		list = append(list, "--tiny")
	}
	return list
}

// faults are those that a run on this machine can have: roll is restart by another
// name.
func faults() []string {
	var list []string
	_, noStrace := exec.LookPath("strace")
	for _, k := range nemesis.Kinds() {
		if k.Needs == cluster.NeedsDisk && os.Geteuid() != 0 || k.Needs == cluster.NeedsTrace && (os.Geteuid() != 0 || noStrace != nil) {
			continue
		}
		if k.Name != nemesis.Chaos && k.Name != "roll" {
			list = append(list, k.Name)
		}
	}
	return list
}

// sizes of the sets of faults, in turns.
var sizes = []int{1, 2, 1, 3}

// round is once over the matrix: each workload without a fault, with all at random,
// and with each fault once, alone or with others. Workloads take turns.
func round(seed uint64, n int) []cell {
	var kinds [][]cell
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	for _, k := range workload.Kinds() {
		if k.New == nil {
			continue
		}
		left := faults()
		rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		sets := [][]string{{"none"}, {nemesis.Chaos}}
		for i := 0; len(left) > 0; i++ {
			size := min(len(left), sizes[(i+n)%len(sizes)])
			sets = append(sets, left[:size])
			left = left[size:]
		}
		rng.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
		var list []cell
		for _, s := range sets {
			list = append(list, cell{k.Name, s, rng.IntN(3) == 0 || slices.Contains(s, "store-liar-list")})
		}
		kinds = append(kinds, list)
	}
	var all []cell
	for i := range kinds[0] {
		for _, list := range kinds {
			all = append(all, list[i])
		}
	}
	return all
}

// nth cell of all rounds.
func nth(seed uint64, n int) cell {
	for r := 0; ; r++ {
		cells := round(seed, r)
		if n < len(cells) {
			return cells[n]
		}
		n -= len(cells)
	}
}
