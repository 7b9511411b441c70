// Package kmsgtest makes random kmsg messages for tests that compare codecs.
package kmsgtest

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fill sets every field of the message that m points to (a kmsg request,
// response or part of one) to a random value, except Version and unknown tags.
// Arrays have up to three elements, strings and bytes up to twenty bytes; what
// can be nil sometimes is.
func Fill(r *rand.Rand, m any) {
	v := reflect.ValueOf(m)
	if d, ok := m.(interface{ Default() }); ok {
		d.Default()
	}
	_, request := m.(kmsg.Request)
	_, response := m.(kmsg.Response)
	fields(r, v.Elem(), request || response)
}

func fields(r *rand.Rand, v reflect.Value, root bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "UnknownTags" || root && f.Name == "Version" {
			continue
		}
		value(r, v.Field(i))
	}
}

func value(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(r.Uint64())
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.String:
		v.SetString(string(bytes(r)))
	case reflect.Array:
		for i := range v.Len() {
			value(r, v.Index(i))
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			value(r, v.Elem())
		}
	case reflect.Slice:
		slice(r, v)
	case reflect.Struct:
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		fields(r, v, false)
	}
}

func slice(r *rand.Rand, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if r.IntN(4) > 0 {
			v.SetBytes(bytes(r))
		}
		return
	}
	n := r.IntN(5) - 1
	if n < 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		value(r, v.Index(i))
	}
}

func bytes(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(20))
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return b
}
