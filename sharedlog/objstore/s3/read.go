package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"ponor/sharedlog/objstore"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// GetRange implements objstore.Bucket.
func (b *Bucket) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	if len(dst) == 0 || off < 0 {
		_, err := b.Head(ctx, key) // only whether it exists
		return 0, err
	}
	n, _, err := b.get(ctx, key, span{off: off, n: int64(len(dst))}, dst)
	if outOfRange(err) {
		return 0, nil // it exists and ends before off
	}
	return n, err
}

// GetTail implements objstore.Bucket.
func (b *Bucket) GetTail(ctx context.Context, key string, dst []byte) (int, int64, error) {
	if len(dst) > 0 {
		n, size, err := b.get(ctx, key, span{off: -1, n: int64(len(dst))}, dst)
		if !outOfRange(err) {
			return n, size, err
		}
	}
	info, err := b.Head(ctx, key)
	if err != nil || len(dst) == 0 || info.Size == 0 {
		return 0, info.Size, err
	}
	// A server that refuses a tail longer than the object.
	n, err := b.GetRange(ctx, key, 0, dst[:min(int64(len(dst)), info.Size)])
	return n, info.Size, err
}

// span is what to read: n bytes from off, or the last n if off is negative.
type span struct{ off, n int64 }

func (s span) header() string {
	if s.off < 0 {
		return fmt.Sprintf("bytes=-%d", s.n)
	}
	return fmt.Sprintf("bytes=%d-%d", s.off, s.off+s.n-1)
}

// get reads a span into dst and returns how much that was and the size of the
// whole object.
func (b *Bucket) get(ctx context.Context, key string, s span, dst []byte) (n int, size int64, err error) {
	if err := objstore.CheckKey(key); err != nil {
		return 0, 0, err
	}
	err = repeat(ctx, func() error {
		n, size, err = b.getOnce(ctx, key, s, dst)
		return err
	})
	return n, size, err
}

func (b *Bucket) getOnce(ctx context.Context, key string, s span, dst []byte) (int, int64, error) {
	attempt, cancel := b.attempt(ctx, s.n)
	defer cancel()
	out, err := b.client.GetObject(attempt, &sdk.GetObjectInput{
		Bucket: &b.where.Bucket, Key: aws.String(b.prefix + key), Range: aws.String(s.header()),
	}, withChecksum)
	if err != nil {
		return 0, 0, b.done(ctx, attempt, "get", key, b.classify(err, false, true))
	}
	defer out.Body.Close()
	n, size, err := receive(out, s, dst)
	return n, size, b.done(ctx, attempt, "get", key, err)
}

// receive checks that an answer is what was asked for and reads it. A body that
// ends early is an error, never the end of the object.
func receive(out *sdk.GetObjectOutput, s span, dst []byte) (int, int64, error) {
	length := aws.ToInt64(out.ContentLength)
	first, size := int64(0), length // without a Content-Range it is all of it
	if out.ContentRange != nil {
		var err error
		if first, size, err = parseContentRange(*out.ContentRange); err != nil {
			return 0, 0, err
		}
	}
	wanted := s.off
	if s.off < 0 {
		wanted = max(0, size-s.n)
	}
	if n := min(s.n, size-wanted); first != wanted || length != n {
		return 0, 0, fmt.Errorf("asked for %s, got %d bytes from %d of %d", s.header(), length, first, size)
	}
	n, err := io.ReadFull(out.Body, dst[:length])
	if err != nil {
		return 0, 0, fmt.Errorf("read body after %d of %d bytes: %w", n, length, err)
	}
	if length == size {
		if err := verify(out, dst[:n]); err != nil {
			return 0, 0, err
		}
	}
	return n, size, nil
}

// verify compares a whole object with the store's checksum, if it sent one.
func verify(out *sdk.GetObjectOutput, data []byte) error {
	sum, err := base64.StdEncoding.DecodeString(aws.ToString(out.ChecksumCRC32C))
	if err != nil || len(sum) != 4 || out.ChecksumType == types.ChecksumTypeComposite {
		return nil //nolint:nilerr // none, or one of parts, which our objects do not have
	}
	if want, got := binary.BigEndian.Uint32(sum), crc32.Checksum(data, castagnoli); got != want {
		return fmt.Errorf("bytes have checksum %08x, the store says %08x", got, want)
	}
	return nil
}

// parseContentRange reads "bytes 10-19/100".
func parseContentRange(v string) (first, size int64, err error) {
	rest, ok := strings.CutPrefix(v, "bytes ")
	positions, total, ok2 := strings.Cut(rest, "/")
	from, _, ok3 := strings.Cut(positions, "-")
	if ok && ok2 && ok3 {
		if first, err = strconv.ParseInt(from, 10, 64); err == nil {
			size, err = strconv.ParseInt(total, 10, 64)
		}
	}
	if !ok || !ok2 || !ok3 || err != nil || first < 0 || size < first {
		return 0, 0, fmt.Errorf("unusable Content-Range %q", v)
	}
	return first, size, nil
}

// Head implements objstore.Bucket.
func (b *Bucket) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := objstore.CheckKey(key); err != nil {
		return objstore.Info{}, err
	}
	info := objstore.Info{Key: key}
	err := repeat(ctx, func() error {
		attempt, cancel := b.attempt(ctx, 0)
		defer cancel()
		out, err := b.client.HeadObject(attempt, &sdk.HeadObjectInput{Bucket: &b.where.Bucket, Key: aws.String(b.prefix + key)})
		if err == nil {
			info.Size = aws.ToInt64(out.ContentLength)
		}
		return b.done(ctx, attempt, "head", key, b.classify(err, false, true))
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// List implements objstore.Bucket, a thousand objects a request.
func (b *Bucket) List(ctx context.Context, prefix, startAfter string, fn func(objstore.Info) error) error {
	in := &sdk.ListObjectsV2Input{Bucket: &b.where.Bucket, Prefix: aws.String(b.prefix + prefix)}
	if startAfter != "" {
		in.StartAfter = aws.String(b.prefix + startAfter)
	}
	last := startAfter
	for {
		page, err := b.page(ctx, in)
		if err != nil {
			return err
		}
		for _, o := range page.Contents {
			key, ok := strings.CutPrefix(aws.ToString(o.Key), b.prefix)
			if !ok || !strings.HasPrefix(key, prefix) || key <= last && last != "" {
				return fmt.Errorf("list %s: store sent %q after %q", prefix, aws.ToString(o.Key), b.prefix+last)
			}
			last = key
			if err := fn(objstore.Info{Key: key, Size: aws.ToInt64(o.Size)}); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		if aws.ToString(page.NextContinuationToken) == "" {
			return fmt.Errorf("list %s: store sent a part of a listing without a token for the next", prefix)
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}

func (b *Bucket) page(ctx context.Context, in *sdk.ListObjectsV2Input) (out *sdk.ListObjectsV2Output, err error) {
	err = repeat(ctx, func() error {
		attempt, cancel := b.attempt(ctx, 1<<20) // a thousand entries take longer than one object
		defer cancel()
		out, err = b.client.ListObjectsV2(attempt, in)
		return b.done(ctx, attempt, "list", aws.ToString(in.Prefix), b.classify(err, false, false))
	})
	return out, err
}
