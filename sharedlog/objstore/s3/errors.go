package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"ponor/sharedlog/objstore"
)

// errConflict: a conditional write met another request for the same key that
// was not done yet. It had no effect and can be sent again at once.
var errConflict = errors.New("conflicting request in progress")

// refusals are the codes that mean "never", with what to do. They are looked up
// before the status: servers do not agree on that.
var refusals = map[string]string{
	"NoSuchBucket":                     "create the bucket, or correct the store's URL",
	"InvalidBucketName":                "correct the bucket in the store's URL",
	"AccessDenied":                     permissions,
	"AllAccessDisabled":                permissions,
	"AccountProblem":                   "the store's operator has blocked the account",
	"InvalidAccessKeyId":               credentials,
	"SignatureDoesNotMatch":            credentials,
	"InvalidToken":                     credentials,
	"ExpiredToken":                     "renew the session token",
	"RequestTimeTooSkewed":             "set this machine's clock",
	"PermanentRedirect":                region,
	"AuthorizationHeaderMalformed":     region,
	"IllegalLocationConstraint":        region,
	"IncorrectEndpoint":                region,
	"MethodNotAllowed":                 "the server lacks a request that the log needs",
	"NotImplemented":                   "the server lacks a request that the log needs",
	"KMS.DisabledException":            "enable the bucket's encryption key",
	"KMS.NotFoundException":            "give the bucket an encryption key that exists",
	"InvalidObjectState":               "take the object out of the archive tier, and that tier off the bucket",
	"MethodNotAllowedForObjectLocking": "take object locking off the bucket",
}

const (
	permissions = "allow s3:PutObject, s3:GetObject and s3:DeleteObject on the prefix, and s3:ListBucket on the bucket"
	credentials = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile or role in use"
	region      = "the bucket is elsewhere: set region (and endpoint) in the store's URL"
)

// full are the codes of a store without room; 507 means it by itself.
var full = []string{"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "StorageFull", "ServiceQuotaExceeded"}

// busy are codes under a status of 4xx that mean "later", like a 503.
var busy = []string{"SlowDown", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "TooManyRequests", "Throttling", "ThrottlingException", "RequestLimitExceeded"}

// classify adds the contract's error to the client's. Without one the outcome is
// unknown: timeouts, broken connections and 5xx may all have been applied.
// create says that "exists" is an answer; object that a bare 404 means the
// object and not the bucket.
func (b *Bucket) classify(err error, create, object bool) error {
	if err == nil {
		return nil
	}
	var code string
	if api := smithy.APIError(nil); errors.As(err, &api) {
		code = api.ErrorCode()
	}
	status := statusOf(err)
	hint, never := refusals[code]
	switch {
	case create && (status == http.StatusPreconditionFailed || code == "PreconditionFailed"):
		return objstore.ErrExists
	case status == http.StatusInsufficientStorage || slices.Contains(full, code):
		return fmt.Errorf("%w: %w", objstore.ErrFull, err)
	case create && code == "ConditionalRequestConflict":
		return fmt.Errorf("%w: %w", errConflict, err)
	case slices.Contains(busy, code):
		return err
	case never:
		return fmt.Errorf("%w: %s (bucket %s at %s): %w", objstore.ErrRefused, hint, b.where.Bucket, b.where.server(), err)
	case status == http.StatusNotFound && object:
		return fmt.Errorf("%w: %w", objstore.ErrNotFound, err)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s (bucket %s at %s): %w", objstore.ErrRefused, refusals["NoSuchBucket"], b.where.Bucket, b.where.server(), err)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s (bucket %s at %s): %w", objstore.ErrRefused, permissions, b.where.Bucket, b.where.server(), err)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: %s (bucket %s at %s): %w", objstore.ErrRefused, region, b.where.Bucket, b.where.server(), err)
	case status == http.StatusNotImplemented, status == http.StatusMethodNotAllowed:
		return fmt.Errorf("%w: %s (bucket %s at %s): %w", objstore.ErrRefused, refusals["NotImplemented"], b.where.Bucket, b.where.server(), err)
	}
	return err
}

func statusOf(err error) int {
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		return resp.HTTPStatusCode()
	}
	return 0
}

// outOfRange says that a range began at or after the object's end.
func outOfRange(err error) bool { return statusOf(err) == http.StatusRequestedRangeNotSatisfiable }

// done puts the operation and the key in front of what happened. An attempt that
// ran into its own limit does not look like the caller's context ending.
func (b *Bucket) done(caller, attempt context.Context, op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case caller.Err() == nil && attempt.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s: no answer from %s in time: %v", op, key, b.where.server(), err) //nolint:errorlint // the limit is ours, not the caller's
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}
