package s3

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// defaultRegion is what servers other than AWS are told: they ignore it, but a
// signature has one.
const defaultRegion = "us-east-1"

// lookupTimeout bounds the search for region and credentials, which may ask a
// metadata service that is not there.
const lookupTimeout = 10 * time.Second

// configure finds region and credentials the way every AWS tool does:
// environment, shared files, roles. It completes where.
func configure(ctx context.Context, where *Location) (aws.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	load := func(more ...func(*config.LoadOptions) error) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, append(more, config.WithLogger(logging.Nop{}), config.WithRetryMaxAttempts(1))...)
	}
	cfg, err := load()
	if err != nil {
		return cfg, fmt.Errorf("open store %s: read AWS settings: %w; check AWS_PROFILE and the files in ~/.aws", where, err)
	}
	switch {
	case where.Region != "":
	case cfg.Region != "":
		where.Region = cfg.Region
	case where.Endpoint != "" || cfg.BaseEndpoint != nil:
		where.Region = defaultRegion
	default: // an instance knows where it runs
		found, err := load(config.WithEC2IMDSRegion())
		if err != nil || found.Region == "" {
			return cfg, fmt.Errorf("open store %s: no region: add ?region=name to the URL or set AWS_REGION; for a server other than AWS add ?endpoint=http://host:port", where)
		}
		where.Region = found.Region
	}
	cfg.Region = where.Region
	if cfg.Credentials == nil {
		return cfg, fmt.Errorf("open store %s: no credentials: %s", where, supply)
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, fmt.Errorf("open store %s: no credentials: %s (%w)", where, supply, err)
	}
	return cfg, nil
}

const supply = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with a profile in ~/.aws, or give the machine a role"

// newClient makes the library do one attempt of one request and nothing else:
// retries are the caller's, who knows that an attempt without answer may have
// been applied.
func newClient(cfg aws.Config, where Location, client aws.HTTPClient) *sdk.Client {
	return sdk.NewFromConfig(cfg, func(o *sdk.Options) {
		o.HTTPClient = client
		o.Retryer = aws.NopRetryer{}
		o.UsePathStyle = where.PathStyle
		if where.Endpoint != "" {
			o.BaseEndpoint = aws.String(where.Endpoint)
		}
		// Our puts bring their checksum and our reads check what they can; the
		// library's own way would read every body twice.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		// A large put would wait a round trip, or a second with servers that
		// never say "continue".
		o.ContinueHeaderThresholdBytes = -1
	})
}

// unsigned leaves the body out of the signature: hashing it would be a second
// pass over it. The signature covers the CRC32C header, and the store checks the
// body against that.
func unsigned(o *sdk.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

// withChecksum asks for the object's checksum in the answer to a read.
func withChecksum(o *sdk.Options) {
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return smithyhttp.AddHeaderValue("X-Amz-Checksum-Mode", "ENABLED")(s)
	})
}

// transport is the library's (with AWS_CA_BUNDLE, proxies, TLS 1.2), with a
// connection for each request that may be in flight: the library keeps ten at
// most and would dial anew for the rest.
func transport(cfg aws.Config) *http.Transport {
	client, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	t := client.GetTransport()
	t.DialContext = (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 5 * time.Second
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 128
	t.IdleConnTimeout = 15 * time.Second // before a server closes it, which costs a failed put
	t.DisableCompression = true          // bytes as they were written
	t.WriteBufferSize, t.ReadBufferSize = 64<<10, 32<<10
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true) // HTTP/2 would put all requests behind one stalled connection
	return t
}

// httpClient is what the library sends requests with.
type httpClient struct{ http.Client }

func newHTTPClient(rt http.RoundTripper) *httpClient {
	return &httpClient{http.Client{
		Transport: rt,
		// The library handles none; an answer that redirects is a wrong region.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// bodyKey is the context's key of the body being put.
type bodyKey struct{}

// Do implements aws.HTTPClient. A put on a connection that the server had
// closed meanwhile is sent again by the transport if it can get the body anew;
// it does that only when no byte was written.
func (c *httpClient) Do(req *http.Request) (*http.Response, error) {
	if b, ok := req.Context().Value(bodyKey{}).(*body); ok && req.Body != nil && b.size > 0 {
		req.GetBody = func() (io.ReadCloser, error) { return &reader{b: b}, nil }
	}
	return c.Client.Do(req)
}
