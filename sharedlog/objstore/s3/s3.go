// Package s3 is a Bucket on Amazon S3 and servers that speak its protocol. It
// is the only package that knows the AWS library.
//
// A put is one request, and the library retries nothing: only the caller knows
// that a create whose answer got lost may have been applied, and how to tell its
// own object from another's. The one exception is "conflict" (409), which says
// that a create was not applied because another was going on. What can be
// repeated without harm (reads, lists, deletes) is tried three times: S3 breaks
// a connection or answers 503 now and then on its best days.
//
// What the store must do that some servers do not: If-None-Match: * on PUT, and
// listings in byte order. objstore.Probe finds out.
//
// Checksums: a put sends the CRC32C of the body, made by the caller while the
// body was put together; the store refuses a body that does not match and
// answers with what it has. A read of a whole object is checked against the
// store's checksum; a read of a part cannot be, and is checked by its caller's
// own sums.
package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"ponor/sharedlog/objstore"
)

// Options of a Bucket. The zero value is right for production.
type Options struct {
	// Timeout ends a request that moves few bytes, default 5 s. A put that is
	// ended has an unknown outcome and is sent again, so less than the store's
	// slowest honest answer costs requests and gains nothing.
	Timeout time.Duration
	// TimeoutPerMiB is added for each MiB that is moved, default 1 s.
	TimeoutPerMiB time.Duration
	// Transport sends requests, nil for one with enough connections. Tests put
	// faults there.
	Transport http.RoundTripper
}

// Bucket is a prefix of a bucket on S3.
type Bucket struct {
	where  Location
	prefix string // of keys: "" or ends in a slash
	client *sdk.Client
	http   *httpClient
	opts   Options
}

var _ objstore.Bucket = (*Bucket)(nil)

// Open connects to the store of a URL that Parse accepts. It asks for region and
// credentials where the URL and the environment leave them open, but sends
// nothing to the store: objstore.Probe does. Errors say what is missing and how
// to supply it.
func Open(ctx context.Context, rawURL string, opts Options) (*Bucket, error) {
	where, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.TimeoutPerMiB <= 0 {
		opts.TimeoutPerMiB = time.Second
	}
	cfg, err := configure(ctx, &where)
	if err != nil {
		return nil, err
	}
	if opts.Transport == nil {
		opts.Transport = transport(cfg)
	}
	b := &Bucket{where: where, opts: opts, http: newHTTPClient(opts.Transport)}
	if where.Prefix != "" {
		b.prefix = where.Prefix + "/"
	}
	b.client = newClient(cfg, where, b.http)
	return b, nil
}

// attempt bounds one request that moves so many bytes.
func (b *Bucket) attempt(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.opts.Timeout+time.Duration(float64(bytes)/(1<<20)*float64(b.opts.TimeoutPerMiB)))
}

// maxTries is how often what can be repeated is tried.
const maxTries = 3

// repeat calls f until it succeeds, gets an answer that stands, or has had its
// tries. f's outcome must not depend on how often it is applied.
func repeat(ctx context.Context, f func() error) error {
	for tries := 1; ; tries++ {
		err := f()
		if err == nil || tries == maxTries || outOfRange(err) || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrRefused) {
			return err
		}
		if pause(ctx, tries) != nil {
			return err
		}
	}
}

// pause waits 20 to 40 ms, twice that for the next try, and so on.
func pause(ctx context.Context, tries int) error {
	t := time.NewTimer(time.Duration(20+rand.IntN(20)) * time.Millisecond << (tries - 1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxConflicts is how often a create is sent again after a conflict before the
// caller is told.
const maxConflicts = 5

// PutNew implements objstore.Bucket.
func (b *Bucket) PutNew(ctx context.Context, key string, body objstore.Body) error {
	for tries := 1; ; tries++ {
		err := b.put(ctx, key, body, true)
		if !errors.Is(err, errConflict) || tries > maxConflicts || pause(ctx, tries) != nil {
			return err
		}
	}
}

// Put implements objstore.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, body objstore.Body) error {
	return b.put(ctx, key, body, false)
}

func (b *Bucket) put(ctx context.Context, key string, content objstore.Body, create bool) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	lent := newBody(content)
	defer lent.release() // whatever the outcome: the caller recycles the parts
	attempt, cancel := b.attempt(context.WithValue(ctx, bodyKey{}, lent), lent.size)
	defer cancel()
	sum := encodeSum(content.CRC32C)
	in := &sdk.PutObjectInput{
		Bucket: &b.where.Bucket, Key: aws.String(b.prefix + key),
		Body: &reader{b: lent}, ContentLength: &lent.size, ChecksumCRC32C: &sum,
	}
	if create {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := b.client.PutObject(attempt, in, unsigned)
	if err == nil && out.ChecksumCRC32C != nil && *out.ChecksumCRC32C != sum {
		err = fmt.Errorf("store has checksum %s, the body %s", *out.ChecksumCRC32C, sum)
	}
	return b.done(ctx, attempt, "put", key, b.classify(err, create, false))
}

// encodeSum is the form of a CRC32C in headers.
func encodeSum(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// maxDelete is how many objects one request may delete.
const maxDelete = 1000

// Delete implements objstore.Bucket.
func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := objstore.CheckKey(key); err != nil {
			return err
		}
	}
	for len(keys) > 0 {
		some := keys[:min(len(keys), maxDelete)]
		keys = keys[len(some):]
		if err := repeat(ctx, func() error { return b.deleteSome(ctx, some) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bucket) deleteSome(ctx context.Context, keys []string) error {
	attempt, cancel := b.attempt(ctx, int64(len(keys))<<13) // a thousand take longer than one
	defer cancel()
	if len(keys) == 1 {
		_, err := b.client.DeleteObject(attempt, &sdk.DeleteObjectInput{Bucket: &b.where.Bucket, Key: aws.String(b.prefix + keys[0])})
		if err = b.classify(err, false, true); errors.Is(err, objstore.ErrNotFound) {
			return nil
		}
		return b.done(ctx, attempt, "delete", keys[0], err)
	}
	in := &sdk.DeleteObjectsInput{Bucket: &b.where.Bucket, Delete: &types.Delete{Quiet: aws.Bool(true)}}
	for _, key := range keys {
		in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: aws.String(b.prefix + key)})
	}
	out, err := b.client.DeleteObjects(attempt, in)
	if err = b.classify(err, false, false); err != nil {
		return b.done(ctx, attempt, fmt.Sprintf("delete %d objects from", len(keys)), keys[0], err)
	}
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		if code == "NoSuchKey" || code == "NotFound" {
			continue
		}
		err := fmt.Errorf("delete %s: %s: %s", aws.ToString(e.Key), code, aws.ToString(e.Message))
		if hint, never := refusals[code]; never {
			err = fmt.Errorf("%w: %s: %w", objstore.ErrRefused, hint, err)
		}
		return err
	}
	return nil
}

// Settle implements objstore.Bucket: what a store shows is durable.
func (b *Bucket) Settle(ctx context.Context, _ string) error { return ctx.Err() }

// Kind implements objstore.Bucket.
func (b *Bucket) Kind() objstore.Kind {
	k := Medium()
	k.URL = b.where.String()
	return k
}

// Medium is the Kind of every S3 store, without the URL. Requests cost money, and
// an answer takes 10 to 30 ms: 20 puts a second are about 260 dollars a month on
// AWS.
func Medium() objstore.Kind {
	return objstore.Kind{Name: "s3", PutsPerSecond: 20, PutBurst: 40, GatherMillis: 2, MaxInflight: 4, TargetObject: 8 << 20}
}

// Close implements objstore.Bucket. Calls in flight go on.
func (b *Bucket) Close() error {
	b.http.CloseIdleConnections()
	return nil
}
