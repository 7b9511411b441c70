package main

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a cluster chooses itself is shown alike, and whatever else differs is found.
func TestDifferences(t *testing.T) {
	answerOf := func(id, other string, f func(*kmsg.JoinGroupResponse)) []answer {
		r := kmsg.NewPtrJoinGroupResponse()
		r.MemberID, r.LeaderID, r.ThrottleMillis = "compare-"+id, "compare-"+other, int32(len(other))
		for _, member := range []string{id, other} {
			m := kmsg.NewJoinGroupResponseMember()
			m.MemberID, m.ProtocolMetadata = "compare-"+member, []byte("metadata")
			r.Members = append(r.Members, m)
		}
		if f != nil {
			f(r)
		}
		var n names
		return []answer{{"join", n.show(r)}}
	}
	const a, b = "01234567-89ab-4def-8123-456789abcdef", "fedcba98-89ab-4def-8123-456789abcdef"
	ponor := answerOf(a, b, nil)
	for _, c := range []struct {
		what  string
		kafka []answer
		want  []string
	}{
		{"the same", answerOf(a, b, nil), nil},
		{"other ids", answerOf(b, a, nil), nil},
		{"another order of members", answerOf(a, b, func(r *kmsg.JoinGroupResponse) { slices.Reverse(r.Members) }), nil},
		{"an error", answerOf(a, b, func(r *kmsg.JoinGroupResponse) { r.ErrorCode = kerr.IllegalGeneration.Code }),
			[]string{"join ErrorCode: ponor NONE, kafka ILLEGAL_GENERATION"}},
		{"null", answerOf(a, b, func(r *kmsg.JoinGroupResponse) { r.Protocol = kmsg.StringPtr("") }),
			[]string{`join Protocol: ponor null, kafka ""`}},
		{"one leader for another", answerOf(a, b, func(r *kmsg.JoinGroupResponse) { r.LeaderID = r.MemberID }),
			[]string{`join MemberID: ponor "compare-id2", kafka "compare-id1"`}}, // they are the first and the second id that is seen
		{"a member less", answerOf(a, b, func(r *kmsg.JoinGroupResponse) { r.Members = r.Members[1:] }),
			[]string{`join Members[1].MemberID: ponor "compare-id2", kafka absent`, "join Members[1].InstanceID: ponor null, kafka absent",
				`join Members[1].ProtocolMetadata: ponor "metadata", kafka absent`}},
		{"no answer", nil, []string{"join : ponor an answer, kafka nothing"}},
	} {
		var got []string
		for _, d := range differences(ponor, c.kafka) {
			got = append(got, d.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// What is intended is what the pattern says, and nothing else of the script.
func TestEveryIntentionHasAReason(t *testing.T) {
	for _, in := range intended {
		if in.why == "" || in.where.MatchString("") {
			t.Errorf("%q: no reason, or it matches everything", in.where)
		}
	}
}
