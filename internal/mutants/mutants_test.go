package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const root = "../.."

func table(t *testing.T) []mutant {
	t.Helper()
	list, err := loadTable(root)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// So that the table cannot rot: no mutant runs here.
func TestEveryMutantMatchesTheCodeOnce(t *testing.T) {
	code, err := loadSource(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range table(t) {
		if _, err := m.mutated(root); err != nil {
			t.Error(err)
		}
		which, err := regexp.Compile(m.tests)
		if err != nil {
			t.Errorf("%s: %v", m.at, err)
			continue
		}
		found := false
		for name := range code.tests {
			found = found || which.MatchString(name)
		}
		if !found {
			t.Errorf("%s: there is no test %s", m.at, m.tests)
		}
	}
}

func TestEveryRuleIsCitedTestedAndHasMutants(t *testing.T) {
	rules, err := loadRules(root)
	if err != nil {
		t.Fatal(err)
	}
	code, err := loadSource(root)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, m := range table(t) {
		for _, id := range m.rules {
			count[id]++
		}
	}
	listed := map[string]bool{}
	for _, r := range rules {
		if listed[r.id] {
			t.Errorf("%s: %s is there twice", ruleFile, r.id)
		}
		listed[r.id] = true
		want := 1
		if r.necessary {
			want = 2
		}
		if count[r.id] < want {
			t.Errorf("%s has %d mutants, want %d or more: add to %s", r.id, count[r.id], want, tableDir)
		}
		if len(r.kept) == 0 || len(r.tests) == 0 {
			t.Errorf("%s: the row of %s names no file or no test", ruleFile, r.id)
		}
		for _, f := range r.kept {
			if !code.cited[r.id][f] {
				t.Errorf("%s says that %s is kept in %s, where no comment cites it", ruleFile, r.id, f)
			}
		}
		for _, name := range r.tests {
			if !code.tests[name] {
				t.Errorf("%s says that %s is tested by %s, which does not exist", ruleFile, r.id, name)
			}
		}
	}
	for id := range count {
		if !listed[id] {
			t.Errorf("mutants of %s, which %s does not list", id, ruleFile)
		}
	}
	for id, files := range code.cited {
		if !listed[id] {
			t.Errorf("%s is cited in %v, but not listed in %s", id, slices.Collect(mapsKeys(files)), ruleFile)
		}
	}
}

func mapsKeys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestTablesThatCannotBe(t *testing.T) {
	for name, text := range map[string]string{
		"text before a block":     "hello\n",
		"heading is too short":    "== slot-1 a.go ./a\n",
		"no words":                "== slot-1 a.go ./a TestA\n-- old\nx\n-- new\ny\n",
		"nothing to replace":      "== slot-1 a.go ./a TestA\nwords\n-- old\n-- new\ny\n",
		"replaced by the same":    "== slot-1 a.go ./a TestA\nwords\n-- old\nx\n-- new\nx\n",
		"no new text, same thing": "== slot-1 a.go ./a TestA\nwords\n",
	} {
		if list, err := parseTable("x.txt", text); err == nil {
			t.Errorf("%s: read as %v", name, list)
		}
	}
}

// The runner itself, on a module of one function: each outcome that must not
// pass for a caught mutant.
func TestRunnerTellsCaughtFromNot(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	for name, c := range map[string]struct{ mutant, want string }{
		"caught":              {block("return a + b", "return a - b", "TestAdd"), "all 1 mutants were caught"},
		"survivor":            {block("return a + b", "return b + a", "TestAdd"), "survives"},
		"does not compile":    {block("return a + b", "return a +", "TestAdd"), "does not compile"},
		"text is gone":        {block("return a * b", "return a", "TestAdd"), "old text is not"},
		"text is there twice": {block("a", "b", "TestAdd"), "times in add.go"},
		"no such test":        {block("return a + b", "return a - b", "TestSub"), "no test of"},
		"sound test fails":    {block("return a + b", "return a - b", "TestWrong"), "fail without any mutation"},
		"hangs":               {block("return a + b", "for {}", "TestAdd"), "(hangs)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":            "module example\n\ngo 1.26\n",
				"add.go":            "package example\n\nfunc add(a, b int) int {\n\treturn a + b\n}\n",
				"add_test.go":       "package example\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestWrong(t *testing.T) { t.Fatal() }\n",
				tableDir + "/a.txt": c.mutant,
			} {
				path := filepath.Join(dir, filepath.FromSlash(file))
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			err := run(t.Context(), []string{"-root", dir, "-timeout", (5 * time.Second).String()}, &out)
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			if !strings.Contains(text, c.want) {
				t.Errorf("printed %q, want %q in it", text, c.want)
			}
			if caught := name == "caught" || name == "hangs"; caught != (err == nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func block(old, replacement, test string) string {
	return "# A table.\n\n== slot-1 add.go . ^" + test + "$\nwords\n-- old\n" + old + "\n-- new\n" + replacement + "\n"
}
