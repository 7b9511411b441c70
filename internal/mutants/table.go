package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one rule broken in one place.
type mutant struct {
	at       string // where the table has it, FILE:LINE
	rules    []string
	file     string // below the repository's root, with slashes
	pkg      string // whose tests run, "./partition"
	tests    string // regular expression for -run
	what     string
	old, new string
}

// heading is what -only matches.
func (m mutant) heading() string {
	return strings.Join(m.rules, ",") + " " + m.file + " " + m.what
}

// tableDir is where the table is.
const tableDir = "internal/mutants/table"

// loadTable reads every file of the table.
func loadTable(root string) ([]mutant, error) {
	names, err := filepath.Glob(filepath.Join(root, tableDir, "*.txt"))
	if err != nil {
		return nil, fmt.Errorf("list table: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no tables; run this in the repository", filepath.Join(root, tableDir))
	}
	var all []mutant
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read table: %w", err)
		}
		list, err := parseTable(tableDir+"/"+filepath.Base(name), string(b))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// parseTable reads one file of the table; name is for messages.
func parseTable(name, text string) ([]mutant, error) {
	var list []mutant
	var into *string // where lines go; nil before the first block
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		switch {
		case strings.HasPrefix(line, "== "):
			f := strings.Fields(line[3:])
			if len(f) != 4 {
				return nil, fmt.Errorf("%s: write '== RULES FILE PACKAGE TESTS'", at)
			}
			list = append(list, mutant{at: at, rules: strings.Split(f[0], ","), file: f[1], pkg: f[2], tests: f[3]})
			into = &list[len(list)-1].what
		case into == nil && (line == "" || strings.HasPrefix(line, "#")):
		case into == nil:
			return nil, fmt.Errorf("%s: text before the first '==' line", at)
		case line == "-- old":
			into = &list[len(list)-1].old
		case line == "-- new":
			into = &list[len(list)-1].new
		default:
			*into += line + "\n"
		}
	}
	for i := range list {
		m := &list[i]
		m.what = strings.Join(strings.Fields(m.what), " ")
		m.old, m.new = strings.TrimRight(m.old, "\n"), strings.TrimRight(m.new, "\n")
		if m.what == "" || m.old == "" || m.old == m.new {
			return nil, fmt.Errorf("%s: a mutant needs words, an old text and another new one", m.at)
		}
	}
	return list, nil
}

// mutated is the file of a mutant with the mutation in it. An error says that
// the table is out of step with the code.
func (m mutant) mutated(root string) ([]byte, error) {
	if !strings.HasSuffix(m.file, ".go") || strings.HasSuffix(m.file, "_test.go") {
		return nil, fmt.Errorf("%s: %s is no file of the product", m.at, m.file)
	}
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.at, err)
	}
	switch n := strings.Count(string(b), m.old); n {
	case 1:
		return []byte(strings.Replace(string(b), m.old, m.new, 1)), nil
	case 0:
		return nil, fmt.Errorf("%s: %w in %s: adapt it to the code as it is now\n%s", m.at, errNoMatch, m.file, m.old)
	default:
		return nil, fmt.Errorf("%s: old text is %d times in %s: take more lines\n%s", m.at, n, m.file, m.old)
	}
}

// errNoMatch: the code has changed where a mutant was.
var errNoMatch = errors.New("old text is not")
