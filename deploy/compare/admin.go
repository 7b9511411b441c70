package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func adminScripts() []script {
	return []script{
		{"delete groups", deleteGroups},
		{"list groups", listGroups},
		{"describe groups", describeGroups},
		{"find coordinator", findCoordinator},
	}
}

// list has the script's own groups in a list compared.
func (s *session) list(states, types string) {
	for v := int16(3); v <= 5; v++ {
		r := kmsg.NewPtrListGroupsRequest()
		for _, f := range []struct {
			text string
			list *[]string
		}{{states, &r.StatesFilter}, {types, &r.TypesFilter}} {
			if f.text != "" {
				*f.list = strings.Split(f.text, ",")
			}
		}
		w := s.send("main", fmt.Sprintf("list states %q types %q", states, types), v, r)
		s.keepOwn(w)
	}
}

// keepOwn has the groups of this script in a list compared.
func (s *session) keepOwn(w *waiting) {
	<-w.done
	if resp, ok := w.resp.(*kmsg.ListGroupsResponse); ok {
		resp.Groups = slices.DeleteFunc(append([]kmsg.ListGroupsResponseGroup{}, resp.Groups...),
			func(g kmsg.ListGroupsResponseGroup) bool { return !strings.HasPrefix(g.Group, s.group("")) })
	}
	w.keep()
}

// kinds makes a group of every kind and state that lasts.
func (s *session) kinds() []string {
	simple, empty, stable := s.group("simple"), s.group("empty"), s.group("stable")
	completing, pending, consumer, left := s.group("completing"), s.group("pending"), s.group("consumer"), s.group("left")
	s.commitAs("simple", simple, "", -1)
	member, generation := s.alone("other", empty)
	s.commitAs("empty", empty, member, generation)
	ask[*kmsg.LeaveGroupResponse](s, "leave", 5, leaveRequest(empty, member))
	member, generation = s.alone("other", stable)
	s.commitAs("stable", stable, member, generation)
	ask[*kmsg.JoinGroupResponse](s, "join", 3, joinRequest(completing, ""))
	s.memberID("other", pending)
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "join", 1, beatRequest(consumer, "m", 0, subscribes("t")))
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "join", 1, beatRequest(left, "m", 0, subscribes("t")))
	ask[*kmsg.ConsumerGroupHeartbeatResponse](s, "leave", 1, beatRequest(left, "m", -1))
	return []string{simple, empty, stable, completing, pending, consumer, left, s.group("unknown"), ""}
}

func deleteGroups(s *session) {
	for v := int16(0); v <= 3; v++ {
		name := s.name
		s.name = fmt.Sprint(name, v)
		all := s.kinds()
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = all
		ask[*kmsg.DeleteGroupsResponse](s, "all kinds", v, r)
		ask[*kmsg.DeleteGroupsResponse](s, "again", v, r)
		r.Groups = nil
		ask[*kmsg.DeleteGroupsResponse](s, "none", v, r)
		s.list("", "")
		for _, g := range all {
			ask[*kmsg.OffsetFetchResponse](s, "offsets of "+g, 7, s.fetchRequest(7, g))
		}
		s.name = name
	}
}

func listGroups(s *session) {
	s.kinds()
	for _, states := range []string{"", "Stable", "stable", "STABLE", "Empty", "PreparingRebalance", "preparingrebalance", "CompletingRebalance",
		"Dead", "Assigning", "Reconciling", "Unknown", "nonsense", "Stable,Empty", "Stable,nonsense"} {
		s.list(states, "")
	}
	for _, types := range []string{"classic", "Classic", "CONSUMER", "consumer", "share", "streams", "simple", "unknown", "nonsense", "classic,consumer", "classic,nonsense"} {
		s.list("", types)
		s.list("Stable,empty", types)
	}
	for v := int16(0); v <= 2; v++ {
		r := kmsg.NewPtrListGroupsRequest()
		w := s.send("main", "list", v, r)
		s.keepOwn(w)
	}
}

func describeGroups(s *session) {
	all := s.kinds()
	for v := int16(0); v <= 6; v++ {
		for _, operations := range []bool{false, true} {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups, r.IncludeAuthorizedOperations = all, operations
			ask[*kmsg.DescribeGroupsResponse](s, "all kinds", v, r)
			r.Groups = []string{all[0], all[0]}
			ask[*kmsg.DescribeGroupsResponse](s, "one twice", v, r)
			r.Groups = nil
			ask[*kmsg.DescribeGroupsResponse](s, "none", v, r)
		}
	}
	for v := int16(0); v <= 1; v++ {
		for _, operations := range []bool{false, true} {
			r := kmsg.NewPtrConsumerGroupDescribeRequest()
			r.Groups, r.IncludeAuthorizedOperations = all, operations
			ask[*kmsg.ConsumerGroupDescribeResponse](s, "all kinds", v, r)
			r.Groups = []string{all[5], all[5]}
			ask[*kmsg.ConsumerGroupDescribeResponse](s, "one twice", v, r)
			r.Groups = nil
			ask[*kmsg.ConsumerGroupDescribeResponse](s, "none", v, r)
		}
	}
}

func findCoordinator(s *session) {
	for v := int16(0); v <= 6; v++ {
		for _, kind := range []int8{0, 1, 2, 3, -1} {
			if v == 0 && kind != 0 {
				continue // it is not sent
			}
			for _, keys := range [][]string{{"g"}, {""}, {"g", "h", "", "g"}, {}, {"g:AAAAAAAAAAAAAAAAAAAAAQ:0"}, {"g:x:0"}} {
				r := kmsg.NewPtrFindCoordinatorRequest()
				r.CoordinatorType = kind
				if v < 4 && len(keys) != 1 {
					continue
				}
				if r.CoordinatorKeys = keys; v < 4 {
					r.CoordinatorKey = keys[0]
				}
				ask[*kmsg.FindCoordinatorResponse](s, fmt.Sprintf("type %d keys %q", kind, keys), v, r)
			}
		}
	}
}
