package main

import (
	"context"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/s3"
)

// worseStore is a local store that is made worse on purpose: as slow as S3 and
// used like it, to see at home what S3 will do (dir:///path?latency=s3), or hurt
// as a file says while tests run (dir:///path?faults=/file, see fault.Script).
type worseStore struct {
	*fault.Bucket
	slow   bool
	faults string             // file
	end    context.CancelFunc // of following it
}

// worsened applies what a store's URL asks for.
func worsened(u *url.URL, b objstore.Bucket) (objstore.Bucket, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, usagef("store %q: %w", u, err)
	}
	w := worseStore{Bucket: fault.New(b, rand.Uint64())}
	for name, values := range q {
		switch {
		case name == "latency" && len(values) == 1 && values[0] == "s3":
			w.slow = true
		case name == "faults" && len(values) == 1 && filepath.IsAbs(values[0]):
			w.faults = values[0]
		default:
			return nil, usagef("store %q: %s=%s is not known; latency=s3 is all there is", u, name, values[0])
		}
	}
	if w.slow && w.faults != "" {
		return nil, usagef("store %q: latency=s3 and faults= do not go together", u)
	}
	switch {
	case w.slow:
		// Small objects in one region; what many bytes take beyond that, the network
		// between here and S3, and 503s are not imitated.
		w.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.Put}, Latency: fault.Latency{Median: 50 * time.Millisecond, P99: 250 * time.Millisecond}})
		w.Add(fault.Rule{Ops: []fault.Op{fault.GetRange, fault.GetTail, fault.Head, fault.List, fault.Delete}, Latency: fault.Latency{Median: 20 * time.Millisecond, P99: 100 * time.Millisecond}})
	case w.faults != "":
		var ctx context.Context
		ctx, w.end = context.WithCancel(context.Background())
		if err := w.Follow(ctx, w.faults); err != nil {
			w.end()
			return nil, usagef("store %q: %w", u, err)
		}
	default:
		return b, nil
	}
	return w, nil
}

// Kind implements objstore.Bucket: sizes and rates of a slow store are those of S3.
func (w worseStore) Kind() objstore.Kind {
	own := w.Bucket.Kind()
	if !w.slow {
		return own
	}
	k := s3.Medium()
	k.Name, k.URL, k.Volatile = own.Name, own.URL+"?latency=s3", own.Volatile
	return k
}

// Close ends the faults and closes the store.
func (w worseStore) Close() error {
	if w.end != nil {
		w.end()
	}
	return w.Bucket.Close()
}

// Warnings says that the store is worse on purpose.
func (w worseStore) Warnings() []string {
	list := storeWarnings(w.Bucket.Bucket)
	if w.slow {
		list = append(list, "latency=s3 makes the store as slow as S3, to try things; leave it out for real use")
	}
	if w.faults != "" {
		list = append(list, "faults="+w.faults+" makes the store fail as that file says, for tests; leave it out for real use")
	}
	return list
}
