package rpc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// route is an API row with what is derived from it.
type route struct {
	API
	name    string
	tagsAt  int16                    // first version whose headers have tags
	layouts []atomic.Pointer[layout] // by version - Min, learned on first use
}

func newRoute(a API) (*route, error) {
	known := kmsg.RequestForKey(a.Key)
	switch {
	case a.Min < 0 || a.Max < a.Min:
		return nil, fmt.Errorf("versions %d to %d are no range", a.Min, a.Max)
	case (a.Handle == nil) == (a.Begin == nil):
		return nil, errors.New("needs exactly one of Handle and Begin")
	case known == nil && !a.Raw:
		return nil, errors.New("kmsg does not know it, so it must be Raw")
	case known != nil && a.Max > known.MaxVersion():
		return nil, fmt.Errorf("kmsg knows versions up to %d, not %d", known.MaxVersion(), a.Max)
	}
	if a.Limit <= 0 {
		a.Limit = DefaultFrameLimit
	}
	r := &route{API: a, name: "API " + strconv.Itoa(int(a.Key)), tagsAt: a.Flexible}
	if known != nil {
		r.name = kmsg.NameForKey(a.Key)
		if a.Flexible == 0 {
			r.tagsAt = firstFlexible(known)
		}
	}
	if !a.Raw {
		r.layouts = make([]atomic.Pointer[layout], a.Max-a.Min+1)
	}
	return r, nil
}

func (r *route) serves(version int16) bool { return version >= r.Min && version <= r.Max }

// flexible says whether the headers of a version have tags. It holds for unknown
// versions of ApiVersions too, as a version once flexible stays so.
func (r *route) flexible(version int16) bool { return version >= r.tagsAt }

// firstFlexible asks kmsg; a key that was never flexible has none.
func firstFlexible(q kmsg.Request) int16 {
	for v := int16(0); v <= q.MaxVersion(); v++ {
		if q.SetVersion(v); q.IsFlexible() {
			return v
		}
	}
	return math.MaxInt16
}

// layout returns what weigh needs. Two goroutines may learn the same one at the
// same time; the results are equal.
func (r *route) layout(version int16) *layout {
	p := &r.layouts[version-r.Min]
	l := p.Load()
	if l == nil {
		l = learnLayout(r.Key, version)
		p.Store(l)
	}
	return l
}
