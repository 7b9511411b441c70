package main

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// field is one field of an answer: where it is, and its value as text.
type field struct{ path, value string }

// answer is what came for one request.
type answer struct {
	what   string
	fields []field
}

// String shows it for -v.
func (a answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", a.what)
	for _, f := range a.fields {
		fmt.Fprintf(&b, " %s=%s", f.path, f.value)
	}
	return b.String()
}

// difference is a field that the two have not alike.
type difference struct{ what, path, ponor, kafka string }

// String shows it.
func (d difference) String() string {
	return fmt.Sprintf("%s %s: ponor %s, kafka %s", d.what, d.path, d.ponor, d.kafka)
}

// differences compares two runs of a script.
func differences(ponor, kafka []answer) (all []difference) {
	for i := range max(len(ponor), len(kafka)) {
		switch {
		case i >= len(ponor):
			all = append(all, difference{kafka[i].what, "", "nothing", "an answer"})
		case i >= len(kafka):
			all = append(all, difference{ponor[i].what, "", "an answer", "nothing"})
		default:
			all = append(all, differ(ponor[i], kafka[i])...)
		}
	}
	return all
}

func differ(ponor, kafka answer) (all []difference) {
	theirs := map[string]string{}
	for _, f := range kafka.fields {
		theirs[f.path] = f.value
	}
	for _, f := range ponor.fields {
		value, ok := theirs[f.path]
		if !ok {
			value = "absent"
		}
		if value != f.value {
			all = append(all, difference{ponor.what, f.path, f.value, value})
		}
		delete(theirs, f.path)
	}
	for _, f := range kafka.fields {
		if value, left := theirs[f.path]; left {
			all = append(all, difference{ponor.what, f.path, "absent", value})
		}
	}
	return all
}

// names makes alike what is the cluster's own choice: member ids are shown by when
// they were first seen, topic ids by name.
type names struct {
	topics map[[16]byte]string
	ids    []string
	epochs []int64
}

func (n *names) epoch(e int64) int {
	if i := slices.Index(n.epochs, e); i >= 0 {
		return i + 1
	}
	n.epochs = append(n.epochs, e)
	return len(n.epochs)
}

// madeID is a UUID as Java and we write it, or as Kafka does, which is 22 characters of
// base 64.
var madeID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$`)

func (n *names) id(s string) string {
	return madeID.ReplaceAllStringFunc(strings.ReplaceAll(s, run, ""), func(id string) string {
		i := slices.Index(n.ids, id)
		if i < 0 {
			i = len(n.ids)
			n.ids = append(n.ids, id)
		}
		return fmt.Sprint("id", i+1)
	})
}

// unordered are lists that Kafka keeps in hash tables.
var unordered = []string{"Members", "Groups", "Topics", "TopicPartitions", "Partitions"}

// show lists the fields of an answer.
func (n *names) show(resp any) (fields []field) {
	n.epochs = nil
	n.walk(&fields, "", reflect.ValueOf(resp).Elem())
	return fields
}

func (n *names) walk(out *[]field, path string, v reflect.Value) {
	add := func(value string) { *out = append(*out, field{path, value}) }
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			add("null")
			return
		}
		n.walk(out, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			n.walkField(out, path, v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Array:
		id, _ := v.Interface().([16]byte)
		name, ok := n.topics[id]
		if !ok {
			name = "another"
		}
		add(name)
	case reflect.Slice:
		n.walkList(out, path, v)
	case reflect.String:
		add(fmt.Sprintf("%q", n.id(v.String())))
	default:
		add(fmt.Sprint(v.Interface()))
	}
}

// walkField shows codes by name; of a text beside one only whether there is one; of
// addresses and throttle times nothing. Of epochs of consumer groups it shows which are
// alike in an answer: where they begin is the cluster's choice.
func (n *names) walkField(out *[]field, path, name string, v reflect.Value) {
	path = strings.TrimPrefix(path+"."+name, ".")
	switch {
	case strings.HasSuffix(name, "Epoch") && name != "LeaderEpoch" && v.Int() > 0:
		*out = append(*out, field{path, fmt.Sprint("epoch ", n.epoch(v.Int()))})
	case name == "Version" || name == "UnknownTags" || name == "ThrottleMillis" || name == "Port":
	case name == "ErrorCode":
		code, _ := v.Interface().(int16)
		text := "NONE"
		if err := kerr.ErrorForCode(code); err != nil {
			text, _, _ = strings.Cut(err.Error(), ":")
		}
		*out = append(*out, field{path, text})
	case name == "ErrorMessage":
		if last := (*out)[len(*out)-1]; last.value != "NONE" {
			*out = append(*out, field{path, map[bool]string{true: "none", false: "a message"}[v.IsNil()]})
		}
	default:
		n.walk(out, path, v)
	}
}

func (n *names) walkList(out *[]field, path string, v reflect.Value) {
	if b, ok := v.Interface().([]byte); ok {
		text := "null"
		if b != nil {
			text = fmt.Sprintf("%q", n.id(string(b)))
		}
		*out = append(*out, field{path, text})
		return
	}
	if v.Len() == 0 {
		text := "empty"
		if v.IsNil() {
			text = "null"
		}
		*out = append(*out, field{path, text})
		return
	}
	items := make([][]field, v.Len())
	for i := range items {
		n.walk(&items[i], "", v.Index(i))
	}
	if slices.Contains(unordered, path[strings.LastIndex(path, ".")+1:]) {
		slices.SortStableFunc(items, func(a, b []field) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	for i, item := range items {
		for _, f := range item {
			at := fmt.Sprintf("%s[%d]", path, i)
			if f.path != "" {
				at += "." + f.path
			}
			*out = append(*out, field{at, f.value})
		}
	}
}
