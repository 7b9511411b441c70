package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// runner runs mutants and prints what became of them.
type runner struct {
	root    string
	timeout time.Duration // of the tests of one mutant
	jobs    int
	out     io.Writer
}

// buildTimeout is what a run may take beyond its tests, to compile.
const buildTimeout = 5 * time.Minute

// memory bounds the Go heap of compilers and test binaries, each.
const memory = "1500MiB"

// fate is what became of a mutant.
type fate struct {
	killer string // the test that failed
	err    error  // why it does not count as caught
}

// run answers an error unless every mutant is caught.
func (r runner) run(ctx context.Context, list []mutant) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("make a place for overlays: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sound, err := r.unmutated(ctx, list)
	if err != nil {
		return err
	}
	fates := make([]fate, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range r.jobs {
		wg.Go(func() {
			for i := range next {
				fates[i] = r.one(ctx, list[i], filepath.Join(dir, fmt.Sprint(i)), sound[list[i].pkg])
				if fates[i].err != nil {
					fmt.Fprintf(r.out, "%s: %s: %v\n", list[i].at, list[i].what, fates[i].err)
				}
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	return r.report(list, fates)
}

// report prints the table.
func (r runner) report(list []mutant, fates []fate) error {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rule\tmutation\ttest that failed")
	bad := 0
	for i, m := range list {
		end := fates[i].killer
		if fates[i].err != nil {
			end, bad = "NOT CAUGHT, see above", bad+1
		}
		fmt.Fprintf(w, "%s\t%s: %s\t%s\n", strings.Join(m.rules, " "), m.file, m.what, end)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", bad, len(list))
	}
	fmt.Fprintf(r.out, "all %d mutants were caught\n", len(list))
	return nil
}

// unmutated runs the tests on the code as it is, package by package, and
// returns which passed.
func (r runner) unmutated(ctx context.Context, list []mutant) (map[string][]string, error) {
	tests := map[string][]string{}
	for _, m := range list {
		if _, err := m.mutated(r.root); err != nil {
			return nil, err
		}
		if !slices.Contains(tests[m.pkg], m.tests) {
			tests[m.pkg] = append(tests[m.pkg], m.tests)
		}
	}
	sound := map[string][]string{}
	for pkg, which := range tests {
		res, err := r.test(ctx, pkg, "("+strings.Join(which, "|")+")", 10*r.timeout)
		if err == nil && (!res.ok || res.built != nil) {
			err = fmt.Errorf("%s fail without any mutation:\n%s", strings.Join(res.failed, ", "), res.output)
		}
		if err != nil {
			return nil, fmt.Errorf("test %s: %w", pkg, err)
		}
		sound[pkg] = res.passed
	}
	return sound, nil
}

// one runs one mutant. base is a path of its own for its files.
func (r runner) one(ctx context.Context, m mutant, base string, sound []string) fate {
	which, err := regexp.Compile(m.tests)
	if err != nil {
		return fate{err: err}
	}
	if !slices.ContainsFunc(sound, which.MatchString) {
		return fate{err: fmt.Errorf("no test of %s matches %s", m.pkg, m.tests)}
	}
	body, err := m.mutated(r.root)
	if err != nil {
		return fate{err: err}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(r.root, filepath.FromSlash(m.file)): base + ".go",
	}})
	if err != nil {
		return fate{err: err}
	}
	for name, b := range map[string][]byte{".go": body, ".json": overlay} {
		if err := os.WriteFile(base+name, b, 0o600); err != nil {
			return fate{err: err}
		}
	}
	res, err := r.test(ctx, m.pkg, m.tests, r.timeout, "-failfast", "-overlay", base+".json")
	switch {
	case err != nil:
		return fate{err: err}
	case res.built != nil:
		return fate{err: fmt.Errorf("does not compile: %w\n%s", res.built, res.output)}
	case res.ok:
		return fate{err: fmt.Errorf("survives %s of %s: a test is missing", m.tests, m.pkg)}
	case len(res.failed) == 0:
		return fate{err: fmt.Errorf("no test failed, yet:\n%s", res.output)}
	}
	killer := res.failed[0]
	if strings.Contains(res.output, "panic: test timed out") {
		killer += " (hangs)"
	}
	return fate{killer: killer}
}

// result is the outcome of one go test.
type result struct {
	ok             bool
	built          error    // why it did not compile
	passed, failed []string // tests; failed are the innermost, in order
	output         string   // the end of it
}

// test runs tests of a package in a process group of its own, so that nothing
// of them outlives it. An error says that the outcome is not known.
func (r runner) test(ctx context.Context, pkg, run string, timeout time.Duration, extra ...string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+buildTimeout)
	defer cancel()
	args := append([]string{"test", "-json", "-vet=off", "-count=1", "-p=1", "-run", run, "-timeout", timeout.String()}, extra...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+memory)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("given up: %w", ctx.Err())
	}
	res := readEvents(out)
	res.ok = err == nil
	return res, nil
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output, FailedBuild string
}

func readEvents(out []byte) result {
	var res result
	var begun []string
	var text bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			text.Write(append(lines.Bytes(), '\n')) // the go command itself speaks
			continue
		}
		text.WriteString(e.Output)
		switch {
		case e.Action == "run":
			begun = append(begun, e.Test)
		case e.Action == "build-fail" || e.FailedBuild != "":
			res.built = fmt.Errorf("the build fails")
		case e.Action == "pass" && e.Test != "":
			res.passed = append(res.passed, e.Test)
		case e.Action == "fail" && e.Test != "" && !strings.HasPrefix(last(res.failed), e.Test+"/"):
			res.failed = append(res.failed, e.Test)
		}
	}
	if len(res.failed) == 0 { // a panic or the timeout ended them all
		for _, name := range slices.Backward(begun) {
			if !slices.Contains(res.passed, name) {
				res.failed = append(res.failed, name)
			}
		}
	}
	const keep = 4 << 10
	res.output = text.String()[max(0, text.Len()-keep):]
	return res
}

func last(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}
