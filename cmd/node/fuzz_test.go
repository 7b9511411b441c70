package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// printed is what 'ponor config print' with these flags says the settings are.
func printed(t *testing.T, args []string) map[string]string {
	t.Helper()
	var out, errOut bytes.Buffer
	args = append([]string{"config", "print", "--format", "json"}, args...)
	if code := run(args, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("%q: exit %d: %s", args, code, errOut.String())
	}
	var origins map[string]origin
	if err := json.Unmarshal(out.Bytes(), &origins); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for key, o := range origins {
		values[key] = o.Value
	}
	return values
}

// sameAgain wants settings back from what is printed of them: as flags, and as
// a file.
func sameAgain(t *testing.T, want settings, args []string) {
	t.Helper()
	values := printed(t, args)
	if got, _, err := loadSettings("", values); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("printed as %v, which reads as %+v, %v; want %+v", values, got, err, want)
	}
	b, err := json.Marshal(values) // YAML, too
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "printed.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := loadSettings(file, nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("printed as %s, which reads as %+v, %v; want %+v", b, got, err, want)
	}
}

// FuzzSettingsFile: any file is read without panic and with memory in
// proportion; what is refused is refused with its line and, if it is a setting,
// its name; what is accepted comes back from what 'config print' shows.
func FuzzSettingsFile(f *testing.F) {
	for _, text := range []string{
		"", "# nothing\n", "node-id: 3\nzone: 'a b'\n", "join: [a:1]\ncontroller-listen: a:1\nstore: dir:///s\n",
		"store: s3://bucket/p?endpoint=http://h:1&region=r\ncache-bytes: 1GiB\nsession-timeout: 1m\nauto-create-topics: on\n",
		"node-id: 1\n---\nnode-id: 2\n", "zone: ~\n", "zone: null\n", "zone: &a x\ndata-dir: *a\n", "zone: {a: b}\n", "<<: {zone: x}\n",
		"zone: \"a\\nb\"\n", "zone: \"\\x00\"\n", "? [a]\n: b\n", "zone: !!binary aGVsbG8=\n", "roles: broker, controller\n", "{\"node-id\": \"7\"}",
		"log-level: INFO+2\n", "listen: '[::1]:9092'\n", "a: &a [*a]\n", strings.Repeat("[", 200), "node-id: 1\nnode-id: 2\n",
	} {
		f.Add([]byte(text))
	}
	named := regexp.MustCompile(`(?s)ponor\.yaml(:[0-9]+:|: yaml: .*|: longer than)`)
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "ponor.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var s settings
		var origins map[string]origin
		var err error
		if n := allocated(func() { s, origins, err = loadSettings(file, nil) }); n > uint64(4<<20+2000*len(text)) {
			t.Errorf("%d bytes made %d bytes of garbage", len(text), n)
		}
		switch {
		case err == nil:
			sameAgain(t, s, []string{"--config", file})
		case origins == nil && !named.MatchString(err.Error()):
			t.Errorf("no line in %q", err)
		case origins != nil && !namesSetting(err.Error(), origins):
			t.Errorf("no setting and its place in %q", err)
		}
	})
}

// namesSetting says whether a message starts with a setting and where it is
// from.
func namesSetting(message string, origins map[string]origin) bool {
	key, rest, _ := strings.Cut(message, " (")
	o, ok := origins[key]
	return ok && strings.HasPrefix(rest, o.Source+"): ")
}

// FuzzSetting: one value says the same on the command line, in the environment
// and in a file, and comes back from what 'config print' shows.
func FuzzSetting(f *testing.F) {
	table := settingsTable()
	for i, row := range table {
		for _, v := range []string{row.def, "", " ", "x", "-1", "1", "\x00", "\xff", "a:1,b:1,c:1", "10GiB", "1h", "true", "dir:///a/../b", "s3://b", "99999999999999999999"} {
			f.Add(i, v)
		}
	}
	f.Fuzz(func(t *testing.T, i int, value string) {
		if i < 0 || i >= len(table) {
			return
		}
		row := table[i]
		s, origins, err := loadSettings("", map[string]string{row.key: value})
		if err != nil && !namesSetting(err.Error(), origins) {
			t.Errorf("no setting and its place in %q", err)
		}
		if err == nil {
			sameAgain(t, s, []string{"--" + row.key + "=" + value})
		}
		if strings.ContainsRune(value, 0) {
			return // no environment can have it
		}
		t.Setenv(row.env(), value)
		byEnv, _, envErr := loadSettings("", nil)
		if (err == nil) != (envErr == nil) || !reflect.DeepEqual(byEnv, s) {
			t.Errorf("%s=%q: %+v, %v by flag; %+v, %v by environment", row.key, value, s, err, byEnv, envErr)
		}
	})
}
