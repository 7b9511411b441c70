package rpc

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// route is an API row with what is derived from it.
type route struct {
	API
	name    string
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
	r := &route{API: a, name: "API " + strconv.Itoa(int(a.Key))}
	if known != nil {
		r.name = kmsg.NameForKey(a.Key)
	}
	if !a.Raw {
		r.layouts = make([]atomic.Pointer[layout], a.Max-a.Min+1)
	}
	return r, nil
}

func (r *route) serves(version int16) bool { return version >= r.Min && version <= r.Max }

// flexible says whether the request header of a version has tags. For unknown
// versions of ApiVersions it must be right as well: every version from 3 on is.
func (r *route) flexible(version int16) bool {
	if q := kmsg.RequestForKey(r.Key); q != nil && r.Flexible == 0 {
		q.SetVersion(version)
		return q.IsFlexible()
	}
	return version >= r.Flexible
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
