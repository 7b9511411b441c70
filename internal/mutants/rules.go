package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ruleFile has the list of rules: the table whose first column is an id.
const ruleFile = "sharedlog/DESIGN.md"

// rule is a row of it.
type rule struct {
	id        string
	necessary bool     // ◆: leaving it out is known to lose records
	kept      []string // files, below the root
	tests     []string // names of test functions
}

var (
	ruleID   = regexp.MustCompile(`\b(?:slot|put|own|cmd|epoch|ext|obj|ans|prod|del|seal|move)-[0-9]+\b`)
	ruleRow  = regexp.MustCompile(`^\| ([a-z]+-[0-9]+)( ◆)? \|`)
	kept     = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
)

// loadRules reads the list of rules.
func loadRules(root string) ([]rule, error) {
	b, err := os.ReadFile(filepath.Join(root, ruleFile))
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var rules []rule
	for line := range strings.Lines(string(b)) {
		m := ruleRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r := rule{id: m[1], necessary: m[2] != ""}
		for _, f := range kept.FindAllStringSubmatch(line, -1) {
			r.kept = append(r.kept, f[1])
		}
		for _, t := range testName.FindAllStringSubmatch(line, -1) {
			r.tests = append(r.tests, t[1])
		}
		rules = append(rules, r)
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s has no table of rules", ruleFile)
	}
	return rules, nil
}

// source is the Go code of the repository's product and its tests.
type source struct {
	cited map[string]map[string]bool // rule id -> files without tests
	tests map[string]bool            // names of test functions
}

var testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)

// loadSource reads what comments and tests there are.
func loadSource(root string) (source, error) {
	s := source{cited: map[string]map[string]bool{}, tests: map[string]bool{}}
	for _, top := range []string{"commitlog", "sharedlog", "metadata", "partition", "controller", "broker", "cmd", "internal", "locallog", "rpc"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			s.add(filepath.ToSlash(rel), b)
			return nil
		})
		if err != nil {
			return s, fmt.Errorf("read code: %w", err)
		}
	}
	return s, nil
}

func (s source) add(file string, b []byte) {
	if strings.HasSuffix(file, "_test.go") {
		for _, m := range testFunc.FindAllSubmatch(b, -1) {
			s.tests[string(m[1])] = true
		}
		return
	}
	for line := range bytes.Lines(b) {
		_, comment, ok := bytes.Cut(line, []byte("//"))
		if !ok {
			continue
		}
		for _, id := range ruleID.FindAll(comment, -1) {
			if s.cited[string(id)] == nil {
				s.cited[string(id)] = map[string]bool{}
			}
			s.cited[string(id)][file] = true
		}
	}
}
