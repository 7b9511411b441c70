package broker_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/metadata"
	"ponor/rpc"
)

var rewrite = flag.Bool("rewrite", false, "write the generated parts of COMPATIBILITY.md anew")

const compatibility = "../COMPATIBILITY.md"

// compatibilityNotes are the last column of the API table.
var compatibilityNotes = map[int16]string{
	0:  "0 to 2 are listed and refused, as in Kafka (KAFKA-18659); no transactional ids",
	1:  "versions 17 and 18 concern replicas only",
	2:  "nothing is tiered: -5 and -6 answer -1",
	3:  "creates topics if `auto.create.topics.enable` and the client say so",
	8:  "",
	9:  "",
	10: "of groups; transactions and share groups have no coordinators yet, see below",
	11: "",
	12: "",
	13: "",
	14: "",
	15: "classic groups",
	16: "",
	18: "",
	19: "placement is the controller's unless assignments are given",
	20: "",
	21: "",
	22: "no transactional ids",
	23: "",
	32: "topics, this broker, its logger",
	33: "topics, brokers",
	34: "there is one place for each storage mode",
	35: "",
	37: "",
	42: "",
	43: "an unclean election finds nothing to elect",
	44: "topics, brokers, this broker's logger",
	45: "applied at once: nothing is copied",
	46: "",
	47: "",
	55: "the end offset of a node without a Raft log is that of its image; nodes are found at their controller listeners",
	60: "brokers only, as on any broker's listener",
	64: "as `ponor broker unregister`: only a broker that is down, and it leaves all replica lists",
	68: "KIP-848; see below",
	69: "KIP-848",
	74: "",
	75: "",
	80: "the node must be running and is found where it registered, whatever listeners the request names; see below",
	81: "as `ponor quorum remove`: refused where the rest could not go on",
}

// COMPATIBILITY.md says what is served, and no API is served without it.
func TestCompatibilityTable(t *testing.T) {
	old, err := os.ReadFile(compatibility)
	if err != nil {
		t.Fatal(err)
	}
	text := replaceGenerated(t, old, "apis", apiTable(t))
	text = replaceGenerated(t, text, "configs", ignoredConfigs())
	if bytes.Equal(text, old) {
		return
	}
	if !*rewrite {
		t.Fatal("COMPATIBILITY.md is out of date; run 'go test ./broker -run TestCompatibilityTable -rewrite'")
	}
	if err := os.WriteFile(compatibility, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// replaceGenerated puts content between a part's markers.
func replaceGenerated(t *testing.T, text []byte, part, content string) []byte {
	t.Helper()
	begin, end := "<!-- generated: "+part+" -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("COMPATIBILITY.md has no markers %q and %q", begin, end)
	}
	return []byte(before + begin + content + end + after)
}

// apiTable is the API table as Markdown, and what kmsg knows beside it.
func apiTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| Key | API | Versions | Flexible from | Frame limit | Notes |\n|--:|---|---|--:|--:|---|\n")
	served := map[int16]bool{}
	for _, a := range broker.New(broker.Config{NodeID: 1}).APIs("") {
		served[a.Key] = true
		note, ok := compatibilityNotes[a.Key]
		if !ok {
			t.Errorf("API %d (%s) has no entry in compatibilityNotes", a.Key, kmsg.NameForKey(a.Key))
		}
		limit := a.Limit
		if limit == 0 {
			limit = rpc.DefaultFrameLimit
		}
		row := fmt.Sprintf("| %d | %s | %d-%d | %s | %d MiB | %s", a.Key, kmsg.NameForKey(a.Key), a.Min, a.Max, firstFlexible(a), limit>>20, note)
		b.WriteString(strings.TrimRight(row, " ") + " |\n")
	}
	for key := range compatibilityNotes {
		if !served[key] {
			t.Errorf("compatibilityNotes has API %d, which is not served", key)
		}
	}
	var absent []string
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil && !served[key] {
			absent = append(absent, fmt.Sprintf("%s (%d)", kmsg.NameForKey(key), key))
		}
	}
	fmt.Fprintf(&b, "\nNot served: %s.\n", strings.Join(absent, ", "))
	return b.String()
}

// firstFlexible is the first flexible version among those served.
func firstFlexible(a rpc.API) string {
	req := kmsg.RequestForKey(a.Key)
	for v := a.Min; v <= a.Max; v++ {
		if req.SetVersion(v); req.IsFlexible() {
			return fmt.Sprint(v)
		}
	}
	return "never"
}

// ignoredConfigs lists the configs that are accepted and shown only.
func ignoredConfigs() string {
	list := func(defs []metadata.ConfigDef) string {
		var names []string
		for _, d := range defs {
			if d.Ignored {
				names = append(names, "`"+d.Name+"`")
			}
		}
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("Topic configs that are accepted and shown and have no effect: %s.\n\nBroker configs of this kind: %s.\n",
		list(metadata.TopicConfigs()), list(metadata.BrokerConfigs()))
}
