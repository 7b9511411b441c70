package layout_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rows is the layer table of ARCHITECTURE.md: the longest matching prefix
// decides. A package imports only from strictly lower rows or its own folder.
var rows = map[string]int{
	"internal":           0,
	"commitlog":          0,
	"commitlog/logtest":  1, // a suite for tests, built with internal helpers
	"rpc":                1,
	"metadata":           1,
	"sharedlog/objstore": 1,
	"partition":          2,
	"sharedlog":          2,
	"locallog":           2,
	"security":           2,
	"controller":         3,
	"coordinator":        3,
	"broker":             4,
	"console":            4,
	"cmd":                5,
	"jepsen":             4,
	"jepsen/sim":         6, // runs whole nodes
	"deploy":             6,
}

// vendors maps a family of libraries to the only folders that may import it.
var vendors = []struct {
	prefix, why string
	allowed     []string
}{
	{"github.com/hashicorp/raft", "consensus stays behind controller", []string{"controller"}},
	{"go.etcd.io/bbolt", "the Raft store is controller's", []string{"controller"}},
	{"github.com/aws/", "the S3 client stays behind its Bucket", []string{"sharedlog/objstore/s3"}},
	{"github.com/twmb/franz-go/pkg/kgo", "the client never serves the broker's own path", []string{"cmd", "deploy", "jepsen", "internal/systest"}},
	{"github.com/twmb/franz-go/pkg/kadm", "the client never serves the broker's own path", []string{"cmd", "deploy", "jepsen", "internal/systest"}},
	{"github.com/go-faster/jx", "only histories of tests are so long that JSON is slow", []string{"jepsen/history"}},
	{"github.com/anishathalye/porcupine", "only histories are searched for an order", []string{"jepsen"}},
	{"github.com/spf13/", "only the command line reads flags", []string{"cmd"}},
	{"go.yaml.in/", "only the command line reads files of settings", []string{"cmd"}},
}

type pkg struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles", "ponor/...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var list []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode package list: %v", err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("found only %d packages", len(list))
	}
	return list
}

// row finds the row of a package path below the module and the folder that
// has it.
func row(path string) (int, string, bool) {
	path = strings.TrimPrefix(path, "ponor/")
	for p := path; p != "."; p = filepath.Dir(p) {
		if r, ok := rows[p]; ok {
			return r, p, true
		}
	}
	return 0, "", false
}

func TestPackagesImportOnlyDownwards(t *testing.T) {
	for _, p := range packages(t) {
		from, folder, ok := row(p.ImportPath)
		if !ok {
			t.Errorf("%s has no row: add its folder to the layer table here and in ARCHITECTURE.md", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, "ponor/") {
				continue
			}
			to, toFolder, ok := row(imp)
			sameTop := strings.Split(folder, "/")[0] == strings.Split(toFolder, "/")[0]
			if ok && to >= from && !sameTop {
				t.Errorf("%s (row %d) imports %s (row %d): declare an interface where it is used and wire it in cmd/node", p.ImportPath, from, imp, to)
			}
		}
	}
}

func TestVendorsStayBehindTheirPackage(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for _, v := range vendors {
				if strings.HasPrefix(imp, v.prefix) && !within(p.ImportPath, v.allowed) {
					t.Errorf("%s imports %s: %s; allowed in %v", p.ImportPath, imp, v.why, v.allowed)
				}
			}
		}
	}
}

// kmsg shares kgo's module path but is allowed everywhere.
func within(path string, allowed []string) bool {
	for _, a := range allowed {
		if path == "ponor/"+a || strings.HasPrefix(path, "ponor/"+a+"/") {
			return true
		}
	}
	return false
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		documented := len(p.GoFiles) == 0
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatalf("parse %s: %v", f, err)
			}
			if file.Doc != nil && len(file.Doc.Text()) > 40 {
				documented = true
			}
		}
		if !documented && !strings.HasSuffix(p.ImportPath, "pb") {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// What is built, or fetched by a test, is no source: history keeps it for ever.
func TestOnlySourcesAreTracked(t *testing.T) {
	const most = 1 << 20
	root := filepath.Join("..", "..")
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("no git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s is tracked and has %d bytes", name, info.Size())
		}
	}
}

// internal/s3test is a module of its own: what its tests import of ours by way of
// others must be in its go.mod, too.
func TestModulesNameWhatTheyNeed(t *testing.T) {
	for _, dir := range []string{".", filepath.Join("internal", "s3test")} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "./...")
		cmd.Dir = filepath.Join("..", "..", dir)
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			t.Errorf("list the packages in %s: %v\n%s", dir, err, &said)
		}
	}
}

// Makefile and docs have people run it by its name.
func TestTheScriptOfKafkaIsExecutable(t *testing.T) {
	info, err := os.Stat(filepath.Join("..", "..", "deploy", "kafka", "kafka.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&0o111 == 0 {
		t.Errorf("its mode is %v", info.Mode())
	}
}
