package drivers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ponor/jepsen/drivers"
)

// A driver is written where a run keeps it, and the command names it.
func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	t.Setenv(drivers.EnvPython, "/opt/my python/bin/python")
	got, err := drivers.Prepare(t.Context(), drivers.Librdkafka, dir)
	if want := `exec '/opt/my python/bin/python' '` + strings.ReplaceAll(dir, "'", `'\''`) + `/librdkafka.py'`; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "librdkafka.py")); err != nil || !strings.Contains(string(b), "confluent_kafka") {
		t.Errorf("its file: %v", err)
	}
}

// What is not there is said together with how to get it.
func TestPrepareRefuses(t *testing.T) {
	t.Setenv(drivers.EnvJars, t.TempDir())
	if _, err := drivers.Prepare(t.Context(), drivers.Java, t.TempDir()); err == nil || !strings.Contains(err.Error(), "kafka.sh fetch") {
		t.Errorf("without jars: %v", err)
	}
	if _, err := drivers.Prepare(t.Context(), "meteor", t.TempDir()); err == nil {
		t.Error("a driver that is none was prepared")
	}
}

// Of several versions of Kafka's jars the newest is taken, by number.
func TestPrepareTakesTheNewestJars(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(drivers.EnvJars, "")
	for _, version := range []string{"4.9.1", "4.10.0", "3.11.12"} {
		dir := filepath.Join(cache, "apache-kafka", version)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kafka-clients-"+version+".jar"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Other jars are missing there, which it says.
	if _, err := drivers.Prepare(t.Context(), drivers.Java, t.TempDir()); err == nil || !strings.Contains(err.Error(), filepath.Join("apache-kafka", "4.10.0")+":") {
		t.Errorf("jars of %v", err)
	}
}
