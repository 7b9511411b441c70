package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestDebugListenerServesProfiles(t *testing.T) {
	var out bytes.Buffer
	stop, err := serveDebug(t.Context(), "127.0.0.1:0", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(out.String()), "url=")
	resp, err := http.Get(url + "goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Contains(body, []byte("goroutine profile")) {
		t.Errorf("no goroutine profile at %s: %v", url, err)
	}
	stop()
	if _, err := http.Get(url); err == nil {
		t.Error("served after stop")
	}
}

func TestDebugListenerIsOffByDefault(t *testing.T) {
	set, _, err := loadSettings("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if set.DebugListen != "" {
		t.Errorf("debug-listen is %q", set.DebugListen)
	}
}
