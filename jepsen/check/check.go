// Package check judges histories. A check is a pure function of a history: the
// same again on an old file.
package check

import "ponor/jepsen/history"

// Verdict on a run or on one check.
type Verdict string

// Verdicts. Unknown is not a pass: the run could not show what was asked.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
	Unknown Verdict = "unknown"
)

// Anomaly is one violation, with the operations that show it.
type Anomaly struct {
	Text string        `json:"text"`
	Key  history.Key   `json:"key"` // -1: of no key
	At   int64         `json:"at"`  // ns, of the op that shows it
	Ops  []int64       `json:"ops"` // indices of operations, the most telling first
	Mark history.Value `json:"value,omitempty"`
}

// Result is what one check says.
type Result struct {
	ID      string  `json:"id"`   // "L3", as in docs/jepsen.md
	Name    string  `json:"name"` // "lost-write"
	Verdict Verdict `json:"verdict"`
	// Tolerated: anomalies that are counted and do not make a run invalid, and
	// why they are.
	Tolerated string `json:"tolerated,omitempty"`
	Count     int    `json:"count"`   // of anomalies
	Checked   int64  `json:"checked"` // operations, records or pairs looked at; 0 makes a check unknown or absent
	// Worst has at most MaxWorst of them.
	Worst  []Anomaly          `json:"worst,omitempty"`
	Note   string             `json:"note,omitempty"`
	Figure map[string]float64 `json:"figure,omitempty"` // name with unit: value
}

// MaxWorst bounds the anomalies kept of one check.
const MaxWorst = 16
