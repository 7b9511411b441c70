package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// settings are everything a node is told from outside. The table below is the
// one place that names them: flags, environment, file and 'config print' are
// generated from it.
type settings struct {
	NodeID            int32
	Roles             string
	Listen            string
	Advertise         string
	ControllerListen  string
	ControllerAdvert  string
	Join              []string
	Store             string
	DataDir           string
	Zone              string
	SessionTimeout    time.Duration
	CacheBytes        int64
	WALBudget         int64
	PackBytes         int64 // 0: the engine chooses
	MaxConnections    int64
	AutoCreateTopics  bool
	DefaultPartitions int32
	LogLevel          string
	LogFormat         string
	MetricsListen     string
	DebugListen       string
	// Tiny is of the hidden flag --tiny alone.
	Tiny bool
}

// setting is one row of the table.
type setting struct {
	key string // flag --key, env PONOR_KEY, YAML key
	def string
	doc string
	set func(*settings, string) error
}

// env is the name of the setting's environment variable.
func (s setting) env() string { return "PONOR_" + strings.ToUpper(strings.ReplaceAll(s.key, "-", "_")) }

// settingsTable lists every setting in the order it is printed.
func settingsTable() []setting {
	return []setting{
		{"node-id", "1", "this node's id, unique in the cluster, 0 to 2147483647", setInt32(func(s *settings) *int32 { return &s.NodeID }, 0)},
		{"roles", "broker,controller", "what this node does: broker,controller or broker; controllers vote in the metadata quorum (1, 3 or 5 of them)", setString(func(s *settings) *string { return &s.Roles })},
		{"listen", "127.0.0.1:9092", "address for Kafka clients; port 0 picks a free one", setString(func(s *settings) *string { return &s.Listen })},
		{"advertise", "", "address clients are told to dial, host:port; default: the listen address", setString(func(s *settings) *string { return &s.Advertise })},
		{"controller-listen", "127.0.0.1:9192", "address for the metadata quorum and the cluster's own calls (controllers only)", setString(func(s *settings) *string { return &s.ControllerListen })},
		{"controller-advertise", "", "address other nodes dial for the quorum; default: the controller-listen address", setString(func(s *settings) *string { return &s.ControllerAdvert })},
		{"join", "", "controller addresses of the cluster, the same list on every node; empty for a single node", setList(func(s *settings) *[]string { return &s.Join })},
		{"store", "", "where logs live, the same on every node: dir:///path (local disk or NFS mount), s3://bucket/prefix?region=name&endpoint=http://host:port (credentials from the environment, as for every AWS tool), or mem: (single nodes, forgets everything); default for a single node: dir://<data-dir>/store", setString(func(s *settings) *string { return &s.Store })},
		{"data-dir", "ponor-data", "directory for the metadata quorum and local logs; brokers that are not controllers need none", setString(func(s *settings) *string { return &s.DataDir })},
		{"zone", "", "availability zone of this node (Kafka's broker.rack)", setString(func(s *settings) *string { return &s.Zone })},
		{"session-timeout", "3s", "a broker that is silent this long loses its partitions; short finds deaths sooner, long tolerates pauses", setDuration(func(s *settings) *time.Duration { return &s.SessionTimeout })},
		{"cache-bytes", "256MiB", "memory for recent records and for blocks read from the store", setBytes(func(s *settings) *int64 { return &s.CacheBytes })},
		{"wal-budget", "128MiB", "bytes that may wait for the store before producers are pushed back", setBytes(func(s *settings) *int64 { return &s.WALBudget })},
		{"pack-bytes", "auto", "unpacked bytes of the write-ahead log at which they are rewritten into large objects; more: fewer rewrites, but a takeover looks at more objects; auto: a quarter of the memory for recent records, at most 64MiB", setBytesOrAuto(func(s *settings) *int64 { return &s.PackBytes })},
		{"max-connections", "20000", "client connections this node accepts", setInt64(func(s *settings) *int64 { return &s.MaxConnections })},
		{"auto-create-topics", "false", "create a topic that a client asks for by name", setBool(func(s *settings) *bool { return &s.AutoCreateTopics })},
		{"default-partitions", "1", "partitions of a topic created without a count (Kafka's num.partitions)", setInt32(func(s *settings) *int32 { return &s.DefaultPartitions }, 1)},
		{"log-level", "info", "debug, info, warn or error", setString(func(s *settings) *string { return &s.LogLevel })},
		{"log-format", "auto", "text, json, or auto: text on a terminal, else json", setString(func(s *settings) *string { return &s.LogFormat })},
		{"metrics-listen", "", "address for Prometheus (/metrics) and for probes (/healthz, /readyz), such as 127.0.0.1:9292; empty: none", setString(func(s *settings) *string { return &s.MetricsListen })},
		{"debug-listen", "", "address for profiles in the form of Go's net/http/pprof, such as 127.0.0.1:6060; empty: none. Let only operators reach it", setString(func(s *settings) *string { return &s.DebugListen })},
	}
}

func setString(at func(*settings) *string) func(*settings, string) error {
	return func(s *settings, v string) error { *at(s) = v; return nil }
}

func setInt32(at func(*settings) *int32, low int64) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < low {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, 1<<31-1)
		}
		*at(s) = int32(n)
		return nil
	}
}

func setInt64(at func(*settings) *int64) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a positive number", v)
		}
		*at(s) = n
		return nil
	}
}

func setBool(at func(*settings) *bool) func(*settings, string) error {
	return func(s *settings, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		*at(s) = b
		return nil
	}
}

func setDuration(at func(*settings) *time.Duration) func(*settings, string) error {
	return func(s *settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a duration such as 500ms or 3s", v)
		}
		*at(s) = d
		return nil
	}
}

func setBytes(at func(*settings) *int64) func(*settings, string) error {
	return func(s *settings, v string) error {
		n, err := parseBytes(v)
		if err != nil {
			return err
		}
		*at(s) = n
		return nil
	}
}

// setBytesOrAuto leaves 0 for auto.
func setBytesOrAuto(at func(*settings) *int64) func(*settings, string) error {
	set := setBytes(at)
	return func(s *settings, v string) error {
		if v == "auto" {
			*at(s) = 0
			return nil
		}
		return set(s, v)
	}
}

func setList(at func(*settings) *[]string) func(*settings, string) error {
	return func(s *settings, v string) error {
		var list []string
		for e := range strings.SplitSeq(v, ",") {
			if e = strings.TrimSpace(e); e != "" {
				list = append(list, e)
			}
		}
		*at(s) = list
		return nil
	}
}

// maxBytes bounds every size, so that sums of some cannot overflow.
const maxBytes = 1 << 50

// parseBytes reads a size such as 1048576, 64KiB, 256MiB or 2GiB.
func parseBytes(v string) (int64, error) {
	num, unit := v, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if s, ok := strings.CutSuffix(v, suffix); ok {
			num, unit = strings.TrimSpace(s), int64(1)<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0, err == nil && n > maxBytes/unit:
		return 0, fmt.Errorf("%q is too large: at most %s", v, bytesText(maxBytes))
	case err != nil || n <= 0:
		return 0, fmt.Errorf("%q is not a size such as 64MiB: a whole number, alone or with KiB, MiB, GiB or TiB", v)
	}
	return n * unit, nil
}

// origin says where a setting's value came from.
type origin struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// loadSettings resolves every setting: flag before environment before file
// before default. given holds the flags that were set on the command line. The
// origins are complete also beside an error.
func loadSettings(file string, given map[string]string) (settings, map[string]origin, error) {
	var s settings
	origins := make(map[string]origin)
	var wrong error
	var fromFile map[string]fileValue
	if file != "" {
		var err error
		if fromFile, err = readSettingsFile(file); err != nil {
			return s, nil, err
		}
	}
	for _, row := range settingsTable() {
		o := origin{row.def, "default"}
		if v, ok := fromFile[row.key]; ok {
			o = origin{v.value, fmt.Sprintf("%s:%d", file, v.line)}
		}
		if v, ok := os.LookupEnv(row.env()); ok {
			o = origin{v, "env " + row.env()}
		}
		if v, ok := given[row.key]; ok {
			o = origin{v, "flag --" + row.key}
		}
		origins[row.key] = o
		err := checkText(o.Value)
		if err == nil {
			err = row.set(&s, o.Value)
		}
		if err != nil && wrong == nil {
			wrong = usagef("%s (%s): %w", row.key, o.Source, err)
		}
	}
	if wrong == nil {
		wrong = s.check()
	}
	if e, ok := errors.AsType[*settingError](wrong); ok {
		wrong = usagef("%s (%s): %w", e.key, origins[e.key].Source, e.err)
	}
	return s, origins, wrong
}

// checkText refuses values that no output could show as they are.
func checkText(v string) error {
	if !utf8.ValidString(v) {
		return fmt.Errorf("%q is not UTF-8", v)
	}
	if i := strings.IndexFunc(v, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%q has a control character", v)
	}
	return nil
}
