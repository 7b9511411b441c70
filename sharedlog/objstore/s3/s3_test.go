package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/s3"
)

// setCredentials makes the environment's the only ones, and keeps this machine's
// files and roles out of the test.
func setCredentials(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
}

// serve opens a bucket whose server is handler.
func serve(t *testing.T, opts s3.Options, handler http.HandlerFunc) *s3.Bucket {
	t.Helper()
	setCredentials(t)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b, err := s3.Open(t.Context(), "s3://logs/pre?endpoint="+server.URL, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	if code != "" {
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
	}
}

func TestPutSendsTheBodyOnceWithItsChecksum(t *testing.T) {
	for _, create := range []bool{true, false} {
		var got *http.Request
		var body []byte
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
			got = r.Clone(context.Background())
			body, _ = io.ReadAll(r.Body)
		})
		data := bytes.Repeat([]byte("0123456789"), 300_000)
		put := b.Put
		if create {
			put = b.PutNew
		}
		if err := put(t.Context(), "a/b", objstore.Body{Parts: [][]byte{data[:1], nil, data[1:77], data[77:]}, CRC32C: 0x01020304}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(body, data) || got.ContentLength != int64(len(data)) || len(got.TransferEncoding) > 0 {
			t.Errorf("got %d bytes, length %d, encoding %q", len(body), got.ContentLength, got.TransferEncoding)
		}
		if got.Method != http.MethodPut || got.URL.Path != "/logs/pre/a/b" {
			t.Errorf("%s %s", got.Method, got.URL.Path)
		}
		for name, want := range map[string]string{
			"X-Amz-Checksum-Crc32c": "AQIDBA==", "X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD", "If-None-Match": map[bool]string{true: "*"}[create], "Expect": "",
		} {
			if v := got.Header.Get(name); v != want {
				t.Errorf("%s is %q, want %q", name, v, want)
			}
		}
		if auth := got.Header.Get("Authorization"); !strings.Contains(auth, "x-amz-checksum-crc32c") || create && !strings.Contains(auth, "if-none-match") {
			t.Errorf("signature covers too little: %s", auth)
		}
	}
}

// What a put's answer means. Whatever leaves the outcome open has none of the
// contract's errors, and is not retried here.
func TestPutOutcomes(t *testing.T) {
	anyOf := []error{objstore.ErrExists, objstore.ErrNotFound, objstore.ErrFull, objstore.ErrRefused, objstore.ErrUndurable}
	for _, c := range []struct {
		status   int
		code     string
		want     error // nil for unknown
		says     string
		requests int
	}{
		{412, "PreconditionFailed", objstore.ErrExists, "", 1},
		{412, "", objstore.ErrExists, "", 1},
		{409, "ConditionalRequestConflict", nil, "conflicting", 6},
		{409, "OperationAborted", nil, "", 1},
		{409, "ObjectParentIsFile", nil, "", 1},
		{503, "SlowDown", nil, "SlowDown", 1},
		{503, "", nil, "503", 1},
		{500, "InternalError", nil, "InternalError", 1},
		{502, "", nil, "502", 1},
		{504, "", nil, "504", 1},
		{429, "TooManyRequests", nil, "", 1},
		{400, "RequestTimeout", nil, "", 1},
		{400, "BadDigest", nil, "BadDigest", 1},
		{403, "AccessDenied", objstore.ErrRefused, "s3:PutObject", 1},
		{403, "", objstore.ErrRefused, "s3:PutObject", 1},
		{403, "InvalidAccessKeyId", objstore.ErrRefused, "AWS_ACCESS_KEY_ID", 1},
		{403, "SignatureDoesNotMatch", objstore.ErrRefused, "AWS_SECRET_ACCESS_KEY", 1},
		{403, "RequestTimeTooSkewed", objstore.ErrRefused, "clock", 1},
		{400, "ExpiredToken", objstore.ErrRefused, "token", 1},
		{400, "AuthorizationHeaderMalformed", objstore.ErrRefused, "region", 1},
		{301, "PermanentRedirect", objstore.ErrRefused, "region", 1},
		{404, "NoSuchBucket", objstore.ErrRefused, "create the bucket", 1},
		{404, "", objstore.ErrRefused, "create the bucket", 1},
		{501, "NotImplemented", objstore.ErrRefused, "lacks", 1},
		{507, "XMinioStorageFull", objstore.ErrFull, "", 1},
		{507, "", objstore.ErrFull, "", 1},
		{403, "QuotaExceeded", objstore.ErrFull, "", 1},
		{400, "XMinioAdminBucketQuotaExceeded", objstore.ErrFull, "", 1},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			var requests atomic.Int32
			b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				fail(w, c.status, c.code)
			})
			err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("x")))
			for _, e := range anyOf {
				if errors.Is(err, e) != errors.Is(c.want, e) {
					t.Errorf("%v: is %q: %v", err, e, errors.Is(err, e))
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "put k") {
				t.Errorf("error %v, want something with %q", err, c.says)
			}
			if int(requests.Load()) != c.requests {
				t.Errorf("%d requests, want %d", requests.Load(), c.requests)
			}
		})
	}
}

func TestPreconditionFailedIsExistsOnlyForCreate(t *testing.T) {
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) { fail(w, 412, "PreconditionFailed") })
	if err := b.Put(t.Context(), "k", objstore.BytesBody(nil)); err == nil || errors.Is(err, objstore.ErrExists) {
		t.Errorf("unconditional put: %v", err)
	}
}

// A conflict is no answer to "does it exist": the create is sent again.
func TestConflictIsRetriedUntilThereIsAnAnswer(t *testing.T) {
	for _, last := range []int{200, 412} {
		var requests atomic.Int32
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) != "whole body" {
				t.Errorf("attempt with body %q", body)
			}
			if requests.Add(1) < 3 {
				fail(w, 409, "ConditionalRequestConflict")
			} else {
				fail(w, last, "")
			}
		})
		err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("whole body")))
		if want := map[int]error{412: objstore.ErrExists}[last]; !errors.Is(err, want) || requests.Load() != 3 {
			t.Errorf("%v after %d requests, want %v after 3", err, requests.Load(), want)
		}
	}
}

func TestStoredChecksumMustBeTheBodys(t *testing.T) {
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
	})
	if err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("x"))); err == nil {
		t.Error("a put that was stored as something else succeeded")
	}
}

func TestBrokenConnectionsAndSilenceLeaveTheOutcomeOpen(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, handler := range map[string]http.HandlerFunc{
		"reset": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"silent": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, s3.Options{Timeout: 50 * time.Millisecond}, handler)
			err := b.PutNew(t.Context(), "k", objstore.BytesBody([]byte("x")))
			_, rerr := b.GetRange(t.Context(), "k", 0, make([]byte, 1))
			_, herr := b.Head(t.Context(), "k")
			lerr := b.List(t.Context(), "", "", func(objstore.Info) error { return nil })
			for _, err := range []error{err, rerr, herr, lerr, b.Delete(t.Context(), "k"), b.Delete(t.Context(), "k", "l")} {
				if err == nil || errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrRefused) {
					t.Errorf("error %v, want one without meaning", err)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v looks like the caller's context ending", err)
				}
			}
		})
	}
}

func TestTheCallersContextEndsACall(t *testing.T) {
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.PutNew(ctx, "k", objstore.BytesBody([]byte("x"))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
}

// A large request may take longer than a small one.
func TestTimeoutGrowsWithSize(t *testing.T) {
	b := serve(t, s3.Options{Timeout: 10 * time.Millisecond, TimeoutPerMiB: 20 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n < 1<<20 {
			<-r.Context().Done() // the client gives up
			return
		}
		time.Sleep(50 * time.Millisecond) // the server's work, not a wait for something
	})
	if err := b.Put(t.Context(), "small", objstore.BytesBody([]byte("x"))); err == nil {
		t.Error("a small put may take for ever")
	}
	if err := b.Put(t.Context(), "large", objstore.BytesBody(make([]byte, 1<<20))); err != nil {
		t.Errorf("large put: %v", err)
	}
}

// slowTransport reads on after the call returned, as http.Transport may.
type slowTransport struct {
	read sync.WaitGroup
	got  []byte
	go1  chan struct{}
}

func (s *slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if r.GetBody != nil {
		body, _ = r.GetBody() // not even behind the library's own guard
	}
	s.read.Go(func() {
		<-s.go1
		s.got, _ = io.ReadAll(iotest.OneByteReader(body))
	})
	return nil, errors.New("gave up")
}

func TestPartsAreNotTouchedOnceAPutReturned(t *testing.T) {
	setCredentials(t)
	st := &slowTransport{go1: make(chan struct{})}
	b, err := s3.Open(t.Context(), "s3://logs?endpoint=http://127.0.0.1:1", s3.Options{Transport: st})
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("the caller's")
	if err := b.PutNew(t.Context(), "k", objstore.BytesBody(data)); err == nil {
		t.Fatal("put succeeded")
	}
	clear(data) // with -race this is seen if somebody reads
	close(st.go1)
	st.read.Wait()
	if len(st.got) > 0 {
		t.Errorf("read %q after the put returned", st.got)
	}
}

func TestReadsCheckWhatTheServerSends(t *testing.T) {
	for name, c := range map[string]struct {
		answer
		ok bool
	}{
		"a part":                        {answer{206, "bytes 2-5/10", "", "2345", ""}, true},
		"up to the end":                 {answer{206, "bytes 2-4/5", "", "234", ""}, true},
		"another part":                  {answer{206, "bytes 3-6/10", "", "2345", ""}, false},
		"too little":                    {answer{206, "bytes 2-3/10", "", "23", ""}, false},
		"all although a part was asked": {answer{200, "", "", "0123456789", ""}, false},
		"no size":                       {answer{206, "bytes 2-5/*", "", "2345", ""}, false},
		"a body that ends early":        {answer{206, "bytes 2-5/10", "", "23", "4"}, false},
		"a part's checksum is ignored":  {answer{206, "bytes 2-5/10", "AAAAAA==", "2345", ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) { c.send(t, w, r, "bytes=2-5") })
			dst := make([]byte, 4)
			n, err := b.GetRange(t.Context(), "k", 2, dst)
			if (err == nil) != c.ok || c.ok && string(dst[:n]) != c.body {
				t.Errorf("%q, %v", dst[:n], err)
			}
		})
	}
	for name, c := range map[string]struct {
		answer
		ok bool
	}{
		"whole object, good":              {answer{206, "bytes 0-8/9", "4waSgw==", "123456789", ""}, true},
		"whole object, damaged":           {answer{206, "bytes 0-8/9", "4waSgw==", "123456780", ""}, false},
		"whole object, range ignored":     {answer{200, "", "4waSgw==", "123456789", ""}, true},
		"whole object, ignored, damaged":  {answer{200, "", "4waSgw==", "x23456789", ""}, false},
		"whole object, composite is none": {answer{206, "bytes 0-8/9", "4waSgw==-2", "123456780", ""}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) { c.send(t, w, r, "") })
			dst := make([]byte, 20)
			n, err := b.GetRange(t.Context(), "k", 0, dst)
			tn, size, terr := b.GetTail(t.Context(), "k", make([]byte, 20))
			if (err == nil) != c.ok || (terr == nil) != c.ok || c.ok && (n != 9 || tn != 9 || size != 9) {
				t.Errorf("range %d, %v; tail %d of %d, %v", n, err, tn, size, terr)
			}
		})
	}
}

// answer is a server's answer to a read.
type answer struct {
	status                          int
	contentRange, sum, body, length string
}

func (a answer) send(t *testing.T, w http.ResponseWriter, r *http.Request, wantRange string) {
	if got := r.Header.Get("Range"); wantRange != "" && got != wantRange {
		t.Errorf("Range: %s, want %s", got, wantRange)
	}
	if r.Header.Get("X-Amz-Checksum-Mode") != "ENABLED" {
		t.Error("did not ask for the checksum")
	}
	for name, value := range map[string]string{"Content-Range": a.contentRange, "X-Amz-Checksum-Crc32c": a.sum, "Content-Length": a.length} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func TestReadOutcomes(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{404, "NoSuchKey", objstore.ErrNotFound},
		{404, "", objstore.ErrNotFound},
		{404, "NoSuchBucket", objstore.ErrRefused},
		{403, "AccessDenied", objstore.ErrRefused},
		{503, "SlowDown", nil},
		{500, "", nil},
	} {
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) { fail(w, c.status, c.code) })
		_, err := b.GetRange(t.Context(), "k", 0, make([]byte, 3))
		_, _, terr := b.GetTail(t.Context(), "k", make([]byte, 3))
		for _, err := range []error{err, terr} {
			if err == nil || errors.Is(err, objstore.ErrNotFound) != errors.Is(c.want, objstore.ErrNotFound) || errors.Is(err, objstore.ErrRefused) != errors.Is(c.want, objstore.ErrRefused) {
				t.Errorf("%d %s: %v, want %v", c.status, c.code, err, c.want)
			}
		}
	}
}

// Reads, lists and deletes survive what passes; three failures in a row do not.
func TestWhatCanBeRepeatedIs(t *testing.T) {
	for failures, ok := range map[int32]bool{0: true, 1: true, 2: true, 3: false} {
		var requests atomic.Int32
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case requests.Add(1) <= failures:
				fail(w, 503, "SlowDown")
			case r.Header.Get("Range") != "":
				answer{206, "bytes 2-5/10", "", "2345", ""}.send(t, w, r, "bytes=2-5")
			case r.Method == http.MethodGet:
				fmt.Fprintf(w, page, false, "", contents("pre/x/1"))
			}
		})
		for name, call := range map[string]func() error{
			"get":    func() error { _, err := b.GetRange(t.Context(), "k", 2, make([]byte, 4)); return err },
			"head":   func() error { _, err := b.Head(t.Context(), "k"); return err },
			"list":   func() error { return b.List(t.Context(), "x/", "", func(objstore.Info) error { return nil }) },
			"delete": func() error { return b.Delete(t.Context(), "k") },
		} {
			requests.Store(0)
			if err := call(); (err == nil) != ok || requests.Load() != min(failures+1, 3) {
				t.Errorf("%s after %d failures: %v, %d requests", name, failures, err, requests.Load())
			}
		}
	}
}

func TestABodyThatBreaksOffIsReadAgain(t *testing.T) {
	var requests atomic.Int32
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			answer{206, "bytes 2-5/10", "", "xx", "4"}.send(t, w, r, "bytes=2-5")
			return
		}
		answer{206, "bytes 2-5/10", "", "2345", ""}.send(t, w, r, "bytes=2-5")
	})
	dst := make([]byte, 4)
	if n, err := b.GetRange(t.Context(), "k", 2, dst); err != nil || string(dst[:n]) != "2345" {
		t.Errorf("%q, %v", dst[:n], err)
	}
}

const page = `<?xml version="1.0"?><ListBucketResult><IsTruncated>%v</IsTruncated>%s%s</ListBucketResult>`

func contents(keys ...string) (s string) {
	for _, k := range keys {
		s += "<Contents><Key>" + k + "</Key><Size>7</Size></Contents>"
	}
	return s
}

func TestListPages(t *testing.T) {
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("prefix") != "pre/x/" || q.Get("start-after") != "pre/x/0" {
			t.Errorf("query %v", q)
		}
		switch q.Get("continuation-token") {
		case "":
			fmt.Fprintf(w, page, true, "<NextContinuationToken>two</NextContinuationToken>", contents("pre/x/1", "pre/x/2"))
		case "two":
			fmt.Fprintf(w, page, false, "", contents("pre/x/3"))
		}
	})
	var got []string
	err := b.List(t.Context(), "x/", "x/0", func(i objstore.Info) error { got = append(got, fmt.Sprint(i.Key, i.Size)); return nil })
	if err != nil || !slices.Equal(got, []string{"x/17", "x/27", "x/37"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestListRefusesNonsense(t *testing.T) {
	for name, answer := range map[string]string{
		"out of order":           fmt.Sprintf(page, false, "", contents("pre/x/2", "pre/x/1")),
		"not after start":        fmt.Sprintf(page, false, "", contents("pre/x/0", "pre/x/1")),
		"another prefix":         fmt.Sprintf(page, false, "", contents("pre/y/1")),
		"more without a token":   fmt.Sprintf(page, true, "", contents("pre/x/1")),
		"a page that ends early": page[:40],
	} {
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, answer) })
		if err := b.List(t.Context(), "x/", "x/0", func(objstore.Info) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDeleteInThousands(t *testing.T) {
	var requests, objects atomic.Int32
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests.Add(1)
		objects.Add(int32(bytes.Count(body, []byte("<Object>"))))
		_, _ = io.WriteString(w, `<DeleteResult></DeleteResult>`)
	})
	keys := make([]string, 2500)
	for i := range keys {
		keys[i] = fmt.Sprint("k/", i)
	}
	if err := b.Delete(t.Context(), keys...); err != nil || requests.Load() != 3 || objects.Load() != 2500 {
		t.Errorf("%v, %d requests, %d objects", err, requests.Load(), objects.Load())
	}
}

func TestDeleteReportsWhatStays(t *testing.T) {
	for code, want := range map[string]error{"AccessDenied": objstore.ErrRefused, "InternalError": nil} {
		b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "<DeleteResult><Error><Key>pre/a</Key><Code>NoSuchKey</Code></Error><Error><Key>pre/b</Key><Code>%s</Code></Error></DeleteResult>", code)
		})
		err := b.Delete(t.Context(), "a", "b")
		if err == nil || !strings.Contains(err.Error(), "pre/b") || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	setCredentials(t)
	if _, err := s3.Open(t.Context(), "s3://logs", s3.Options{}); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	b, err := s3.Open(t.Context(), "s3://logs/p", s3.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if u := b.Kind().URL; u != "s3://logs/p?region=eu-central-1" {
		t.Errorf("URL %s", u)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	if _, err := s3.Open(t.Context(), "s3://logs", s3.Options{}); err == nil || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") {
		t.Errorf("without credentials: %v", err)
	}
	t.Setenv("AWS_PROFILE", "absent")
	if _, err := s3.Open(t.Context(), "s3://logs", s3.Options{}); err == nil || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("with a profile that is not there: %v", err)
	}
}
