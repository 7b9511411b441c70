// Package steer lets a file steer a process that somebody tests: the process does
// what the file says, and says in another one beside it what came of that.
package steer

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"
)

// SeenSuffix is added to the name of a file for what the process says of it.
const SeenSuffix = ".seen"

// pollEvery is how long a change of a file may go unnoticed.
const pollEvery = 50 * time.Millisecond

// Follow gives use what a file says whenever that changes, until ctx ends. Text is
// what is in use when it begins; what use refuses changes nothing. Beside the file it
// keeps what seen says.
func Follow(ctx context.Context, file string, text []byte, seen func() any, use func([]byte) error) {
	var told []byte
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		said, err := json.Marshal(seen())
		if err == nil && !bytes.Equal(said, told) && replace(file+SeenSuffix, said) == nil {
			told = said
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(now, text) && use(now) == nil {
			text = now
		}
	}
}

// Write replaces a file whole.
func Write(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replace(file, b)
}

// ReadSeen reads what a process says of a file into v.
func ReadSeen(file string, v any) error {
	b, err := os.ReadFile(file + SeenSuffix)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func replace(file string, b []byte) error {
	temp := file + ".tmp"
	if err := os.WriteFile(temp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, file)
}
