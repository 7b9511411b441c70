package wall_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ponor/internal/wall"
)

// off is how far the time of day is from the machine's.
func off() time.Duration {
	t := time.Now()
	return time.Duration(wall.Milli(t)-t.UnixMilli()) * time.Millisecond
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A process's time of day is off by what a file says, it says so, and it is right
// again when the file says nothing more.
func TestFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	if off() != 0 {
		t.Fatal("the time is off before anybody said so")
	}
	if err := wall.Follow(t.Context(), file); err == nil {
		t.Fatal("a file that is not there is followed")
	}
	write := func(s wall.Skew) {
		t.Helper()
		if err := wall.Write(file, s); err != nil {
			t.Fatal(err)
		}
	}
	write(wall.Skew{Serial: 1, By: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	if err := wall.Follow(ctx, file); err != nil {
		t.Fatal(err)
	}
	if got := off(); got != time.Hour {
		t.Errorf("it is off by %v at once", got)
	}
	told := func(serial int) int64 {
		seen, err := wall.ReadSeen(file)
		if err != nil || seen.Serial != serial {
			return 0
		}
		return seen.Told
	}
	eventually(t, "it says what it told", func() bool { return told(1) > 0 })
	write(wall.Skew{Serial: 2, By: -time.Minute})
	eventually(t, "it follows the file", func() bool { return off() == -time.Minute })
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says what it told", func() bool { return off() == -time.Minute && told(2) > 10 })
	write(wall.Skew{Serial: 3, By: time.Second, Strobe: 5 * time.Millisecond})
	for _, want := range []time.Duration{time.Second, 0, time.Second, 0} {
		eventually(t, "it is off by turns", func() bool { return off() == want })
	}
	write(wall.Skew{Serial: 4})
	eventually(t, "it is right again", func() bool { return off() == 0 })
	write(wall.Skew{Serial: 5, By: time.Hour})
	eventually(t, "it follows the file", func() bool { return off() == time.Hour })
	cancel()
	eventually(t, "it is right when nobody follows the file", func() bool { return off() == 0 })
}
