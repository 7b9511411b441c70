package main

import (
	"math/rand/v2"
	"net/url"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/s3"
)

// slowStore is a local store that answers as slowly as S3 and is used like it,
// to see at home what S3 will do: dir:///path?latency=s3.
type slowStore struct{ *fault.Bucket }

// slowed applies the latency that a store's URL asks for.
func slowed(u *url.URL, b objstore.Bucket) (objstore.Bucket, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, usagef("store %q: %w", u, err)
	}
	slow := false
	for name, values := range q {
		if name != "latency" || len(values) != 1 || values[0] != "s3" {
			return nil, usagef("store %q: %s=%s is not known; latency=s3 is all there is", u, name, values[0])
		}
		slow = true
	}
	if !slow {
		return b, nil
	}
	f := fault.New(b, rand.Uint64())
	// Small objects in one region; what many bytes take beyond that, the network
	// between here and S3, and 503s are not imitated.
	f.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.Put}, Latency: fault.Latency{Median: 50 * time.Millisecond, P99: 250 * time.Millisecond}})
	f.Add(fault.Rule{Ops: []fault.Op{fault.GetRange, fault.GetTail, fault.Head, fault.List, fault.Delete}, Latency: fault.Latency{Median: 20 * time.Millisecond, P99: 100 * time.Millisecond}})
	return slowStore{f}, nil
}

// Kind implements objstore.Bucket: sizes and rates are those of S3.
func (s slowStore) Kind() objstore.Kind {
	own, k := s.Bucket.Kind(), s3.Medium()
	k.Name, k.URL, k.Volatile = own.Name, own.URL+"?latency=s3", own.Volatile
	return k
}

// Warnings says that the store is slow on purpose.
func (s slowStore) Warnings() []string {
	return append(storeWarnings(s.Bucket.Bucket), "latency=s3 makes the store as slow as S3, to try things; leave it out for real use")
}
