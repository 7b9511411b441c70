package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ponor runs a command line and returns its exit code and output.
func ponor(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func configFileOf(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ponor.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSettingsComeFromFlagThenEnvThenFileThenDefault(t *testing.T) {
	file := configFileOf(t, "node-id: 7\nzone: from-file\nlisten: 127.0.0.1:1\ncontroller-listen: a:1\njoin:\n  - a:1\n  - b:2\n  - c:3\nstore: dir:///s\n")
	t.Setenv("PONOR_ZONE", "from-env")
	t.Setenv("PONOR_LISTEN", "127.0.0.1:2")
	code, out, errOut := ponor(t, "config", "print", "--config", file, "--listen", "127.0.0.1:3", "--format", "json")
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var got map[string]origin
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]origin{
		"listen":   {"127.0.0.1:3", "flag --listen"},
		"zone":     {"from-env", "env PONOR_ZONE"},
		"node-id":  {"7", file + ":1"},
		"join":     {"a:1,b:2,c:3", file + ":5"},
		"data-dir": {"ponor-data", "default"},
	} {
		if got[key] != want {
			t.Errorf("%s is %+v, want %+v", key, got[key], want)
		}
	}
}

func TestWrongSettingsSayWhatWhereAndWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name, file string
		args       []string
		want       []string
	}{
		{"unknown key", "node-id: 1\nadvertize: x:1\n", nil, []string{":2:", `"advertize"`, "did you mean advertise?"}},
		{"key twice", "zone: a\nzone: b\n", nil, []string{":2:", "second time", "line 1"}},
		{"not a mapping", "- a\n", nil, []string{":1:", "node-id: 1"}},
		{"nested value", "zone: {a: b}\n", nil, []string{":1:", "zone"}},
		{"bad yaml", "zone: [\n", nil, []string{"yaml"}},
		{"bad number", "node-id: -4\n", nil, []string{"node-id", ":1", "-4"}},
		{"bad size", "", []string{"--cache-bytes", "12 apples"}, []string{"cache-bytes", "12 apples", "64MiB"}},
		{"bad duration", "", []string{"--session-timeout", "3"}, []string{"session-timeout", "3s"}},
		{"memory store in a cluster", "", []string{"--controller-listen", "a:1", "--join", "a:1,b:1,c:1", "--store", "mem:"}, []string{"mem:", "dir:///"}},
		{"no store in a cluster", "", []string{"--controller-listen", "a:1", "--join", "a:1,b:1,c:1"}, []string{"--store dir:///"}},
		{"relative store", "", []string{"--store", "dir://srv/x"}, []string{"three slashes"}},
		{"unknown store", "", []string{"--store", "ftp://x"}, []string{"ftp://x", "dir:///"}},
		{"s3 store without a bucket", "", []string{"--store", "s3:///x"}, []string{"names no bucket", "s3://bucket/prefix"}},
		{"s3 store with a secret", "", []string{"--store", "s3://id:secret@b/x"}, []string{"AWS_SECRET_ACCESS_KEY"}},
		{"even quorum", "", []string{"--join", "a:1,127.0.0.1:9192", "--store", "dir:///s"}, []string{"2 controllers", "1, 3 or 5"}},
		{"quorum on all interfaces", "", []string{"--controller-listen", "0.0.0.0:1", "--join", "a:1,b:1,c:1", "--store", "dir:///s"}, []string{"--controller-advertise"}},
		{"impatient", "", []string{"--session-timeout", "1ms"}, []string{"session-timeout", "500ms"}},
		{"packs too large", "", []string{"--pack-bytes", "2GiB"}, []string{"pack-bytes", "1GiB"}},
		{"no memory", "", []string{"--cache-bytes", "1KiB"}, []string{"8MiB"}},
		{"unknown role", "", []string{"--roles", "broker,observer"}, []string{"observer"}},
		{"broker without join", "", []string{"--roles", "broker", "--store", "dir:///s"}, []string{"--join"}},
		{"address without port", "", []string{"--listen", "localhost"}, []string{"localhost", "host:port"}},
		{"log level", "", []string{"--log-level", "loud"}, []string{"loud", "debug"}},
		{"missing file", "", []string{"--config", "/does/not/exist"}, []string{"/does/not/exist"}},
		{"unknown flag", "", []string{"--nope"}, []string{"--nope"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"config", "print"}
			if c.file != "" {
				args = append(args, "--config", configFileOf(t, c.file))
			}
			code, _, errOut := ponor(t, append(args, c.args...)...)
			if code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			for _, w := range c.want {
				if !strings.Contains(errOut, w) {
					t.Errorf("%q is missing in: %s", w, errOut)
				}
			}
		})
	}
}

func TestSizesAreReadWithUnits(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "64KiB": 64 << 10, "256MiB": 256 << 20, "2 GiB": 2 << 30} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q reads as %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "0", "1.5GiB", "9999999999999GiB", "x"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q reads as %d, want an error", text, got)
		}
	}
}

func TestErrorsAreJSONWhereJSONWasAskedFor(t *testing.T) {
	code, out, _ := ponor(t, "topic", "list", "--bootstrap", "127.0.0.1:1", "--format", "json")
	var v struct{ Error string }
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Error == "" || code != exitError {
		t.Errorf("exit %d, output %q (%v)", code, out, err)
	}
}
