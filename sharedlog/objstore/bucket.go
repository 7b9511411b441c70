// Package objstore is the contract with a store of immutable objects (S3, a
// directory or NFS mount, memory) and what every implementation shares: the
// start-up probe, key helpers and decorators. A Bucket only stores; batching,
// caching and sweeping are its callers' work.
//
// What a Bucket promises, checked by package objstore/objtest for every
// implementation and by Probe at start-up for the real store:
//
//	B1  PutNew creates an object whole or not at all, and of any number of
//	    concurrent PutNew of one key exactly one ever succeeds.
//	B2  After PutNew or Put returned nil, the object survives any crash of this
//	    process, of the machine and of the store.
//	B3  An object, once created, never changes. Only Delete ends it.
//	B4  After PutNew returned nil or ErrExists, every GetRange anywhere sees it.
//	    Head and List may lag; no safety decision may rest on their "no".
//	B5  Bytes come back as written, or not at all.
//
// Any error but ErrExists and ErrNotFound leaves the outcome unknown: the write
// may still happen, even later.
package objstore

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
)

// Errors a caller branches on. They arrive wrapped with the key.
var (
	// ErrExists: PutNew met an object. It may be the caller's own earlier attempt.
	ErrExists = errors.New("object exists")
	// ErrNotFound: no object has the key.
	ErrNotFound = errors.New("object not found")
	// ErrFull: the store has no room (ENOSPC, quota). Retrying helps once there is.
	ErrFull = errors.New("store is full")
	// ErrUndurable: the store lost the ability to tell what is durable (fsync of
	// a directory failed). What is visible may vanish; nothing written there may
	// be acknowledged any more, and a later success proves nothing.
	ErrUndurable = errors.New("durability is unknown")
	// ErrRefused: the store answered that this can never work (denied, no such
	// bucket, not a directory). Retrying does not help.
	ErrRefused = errors.New("store refused")
)

// Body is what to write: parts laid end to end, not copied, and the CRC32C of
// the whole, which the store verifies where it can. A call does not touch the
// parts any more once it returned, whatever the outcome; the caller recycles
// them.
type Body struct {
	Parts  [][]byte
	CRC32C uint32
}

// BytesBody is a Body of one part.
func BytesBody(b []byte) Body {
	return Body{Parts: [][]byte{b}, CRC32C: crc32.Checksum(b, castagnoli)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Len is the size in bytes.
func (b Body) Len() int64 {
	var n int64
	for _, p := range b.Parts {
		n += int64(len(p))
	}
	return n
}

// Info describes an object in a listing.
type Info struct {
	Key  string
	Size int64
}

// Bucket is one store. Keys are slash-separated, without leading slash, and
// never both an object and a prefix of others ("a" and "a/b"). All methods are
// safe for concurrent use.
type Bucket interface {
	// PutNew creates the object if its key is free (B1, B2).
	PutNew(ctx context.Context, key string, body Body) error
	// Put creates or replaces. Only for objects that nothing depends on.
	Put(ctx context.Context, key string, body Body) error
	// GetRange fills dst from position off and returns how much it got; less
	// than len(dst) means the object ends there.
	GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error)
	// GetTail fills dst with the object's last bytes and returns how many they
	// are and the object's size.
	GetTail(ctx context.Context, key string, dst []byte) (n int, size int64, err error)
	// Head describes an object.
	Head(ctx context.Context, key string) (Info, error)
	// List calls fn for every object under prefix with a key after startAfter,
	// in byte order, until fn returns an error. io.EOF from fn ends it without
	// one.
	List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error
	// Delete removes objects; absent ones are no error.
	Delete(ctx context.Context, keys ...string) error
	// Settle returns once everything that is visible under prefix is durable: a
	// directory store fsyncs what another process may only have in the page
	// cache. Elsewhere it does nothing.
	Settle(ctx context.Context, prefix string) error
	// Kind says what the store is good at, to choose sizes and concurrency.
	Kind() Kind
	io.Closer
}

// Kind are the properties of a medium that callers tune by.
type Kind struct {
	// Name is the URL scheme: "s3", "dir", "mem".
	Name string
	// URL is the store for messages, without credentials.
	URL string
	// PutsPerSecond is the token rate for WAL writes, 0 for unlimited; PutBurst its burst.
	PutsPerSecond float64
	PutBurst      int
	// GatherMillis is how long an idle WAL waits for company before it writes.
	GatherMillis int
	// MaxInflight is how many WAL writes may be in flight.
	MaxInflight int
	// TargetObject is the size in bytes at which a WAL object is sealed.
	TargetObject int
	// Volatile stores forget everything with the process.
	Volatile bool
}
