package metadata_test

import (
	"strings"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// FuzzConfigValue: any value of any config is accepted or refused without panic
// and with memory in proportion; a refusal names the config, and what is
// accepted is what the image shows, also after a snapshot.
func FuzzConfigValue(f *testing.F) {
	tables := map[metadata.ConfigKind][]metadata.ConfigDef{metadata.KindTopic: metadata.TopicConfigs(), metadata.KindBroker: metadata.BrokerConfigs()}
	for kind, table := range tables {
		for i, d := range table {
			for _, v := range append([]string{d.Default, "", "-1", "1e9", " 5 ", "9223372036854775807", "a,b,a", "\xff", "true"}, d.Enum...) {
				f.Add(int8(kind), i, v)
			}
		}
	}
	base, _ := metadata.Apply(metadata.Empty(), 1, metadata.NewEntry(initCluster(clusterID, 1)))
	base, results := metadata.Apply(base, 2, metadata.NewEntry(register(1, 1)))
	base, results = metadata.Apply(base, 3, metadata.NewEntry(createTopic("t", 1, results[0].Incarnation)))
	if results[0].Err != nil {
		f.Fatal(results[0].Err)
	}
	f.Fuzz(func(t *testing.T, kind int8, i int, value string) {
		table, ok := tables[metadata.ConfigKind(kind)]
		if !ok || i < 0 || i >= len(table) {
			return
		}
		d := table[i]
		validate, resource := metadata.ValidateTopicConfig, "t"
		if metadata.ConfigKind(kind) == metadata.KindBroker {
			validate, resource = metadata.ValidateBrokerConfig, ""
		}
		var err error
		if n := allocated(func() { err = validate(d.Name, value) }); n > uint64(1<<20+100*len(value)) {
			t.Errorf("%d bytes made %d bytes of garbage", len(value), n)
		}
		if err != nil {
			if !strings.Contains(err.Error(), d.Name) {
				t.Errorf("%q does not name %s", err, d.Name)
			}
			return
		}
		img, results := metadata.Apply(base, base.Index()+1, metadata.NewEntry(&pb{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: &metadatapb.AlterConfigs{
			Kind: int32(kind), Name: resource, Ops: []*metadatapb.ConfigOp{{Name: d.Name, Value: value}},
		}}}))
		if results[0].Err != nil {
			return // too long
		}
		settings := img.TopicSettings("t") // reads whatever was accepted
		again, err := metadata.FromSnapshot(metadata.Snapshot(img))
		if err != nil {
			t.Fatal(err)
		}
		if got, set := again.Config(metadata.ConfigKind(kind), resource, d.Name); !set || got != value || again.TopicSettings("t") != settings {
			t.Errorf("%s=%q comes back as %q, %t", d.Name, value, got, set)
		}
	})
}
