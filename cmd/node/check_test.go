package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckStoreTellsWhatItFound(t *testing.T) {
	store := t.TempDir()
	code, out, errOut := ponor(t, "check", "store", "dir://"+store)
	if code != exitOK || !strings.Contains(out, "creates exclusively") || !strings.Contains(out, "fastest create") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	code, out, _ = ponor(t, "check", "store", "dir://"+store, "--format", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if got["kind"] != "dir" || got["create_ms"].(float64) <= 0 || got["volatile"] != false {
		t.Errorf("found %v", got)
	}
}

func TestCheckStoreMakesNoDirectory(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	code, out, errOut := ponor(t, "check", "store", "dir://"+store)
	if want := "no such file or directory; the first controller of a cluster makes the directory"; code != exitError || out != "" || !strings.Contains(errOut, want) {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	if _, err := os.Stat(store); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check made it: %v", err)
	}
}

func TestCheckStoreExitsWith1AndSaysWhy(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`<Error><Code>NoSuchBucket</Code></Error>`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for store, want := range map[string]string{
		"s3://logs?endpoint=" + server.URL: "create the bucket",
		"dir://" + file:                    "not a directory",
	} {
		code, out, errOut := ponor(t, "check", "store", store)
		if code != exitError || !strings.Contains(errOut, want) || out != "" {
			t.Errorf("%s: exit %d, %s%s", store, code, out, errOut)
		}
		code, out, _ = ponor(t, "check", "store", store, "--format", "json")
		var got map[string]string
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitError || !strings.Contains(got["error"], want) {
			t.Errorf("%s: exit %d, %s", store, code, out)
		}
	}
	if code, _, errOut := ponor(t, "check", "store", "s3://"); code != exitUsage || !strings.Contains(errOut, "names no bucket") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
