package s3

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"ponor/sharedlog/objstore"
)

// Location is where a store is. It has no credentials: those come from the
// environment, so that a URL can be printed and logged.
type Location struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix is put before every key, without slashes at its ends; "" is none.
	Prefix string
	// Endpoint is the base URL of a server other than AWS, "" is AWS.
	Endpoint string
	// Region is the bucket's region, "" is what the environment says.
	Region string
	// PathStyle puts the bucket into the path instead of the host name. It is
	// the default where there is an endpoint: such servers seldom have a
	// wildcard name.
	PathStyle bool
}

// example is in every message about a bad URL.
const example = "write s3://bucket/prefix or s3://bucket/prefix?endpoint=http://host:port&region=name"

// bucketName is wider than AWS's rule: other servers allow more.
var bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,62}$`)

// Parse reads a URL such as
// s3://bucket/prefix?endpoint=http://host:port&region=name&path-style=true. The
// error says what is wrong and what to write.
func Parse(raw string) (Location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, fmt.Errorf("store URL: %w; %s", err, example)
	}
	l := Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	switch {
	case u.Scheme != "s3":
		return l, fmt.Errorf("store %q is not an s3 URL; %s", u.Redacted(), example)
	case u.User != nil:
		return l, fmt.Errorf("store s3://%s has credentials in it: they would be seen in logs and process lists; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead", u.Host)
	case u.Host == "":
		return l, fmt.Errorf("store %q names no bucket; %s", raw, example)
	case !bucketName.MatchString(u.Host):
		return l, fmt.Errorf("store %q: %q cannot be a bucket's name (letters, digits, dots and dashes, 2 to 63 of them; a server's address belongs into endpoint=); %s", raw, u.Host, example)
	case u.Fragment != "":
		return l, fmt.Errorf("store %q has a fragment (#); %s", raw, example)
	case l.Prefix != "" && (len(l.Prefix) > 200 || objstore.CheckKey(l.Prefix) != nil):
		return l, fmt.Errorf("store %q: prefix %q is not usable: at most 200 bytes, names between slashes that are not empty and do not start with a dot", raw, l.Prefix)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, fmt.Errorf("store %q: %w; %s", raw, err, example)
	}
	if l.Endpoint = query.Get("endpoint"); l.Endpoint != "" {
		if err := checkEndpoint(l.Endpoint); err != nil {
			return l, fmt.Errorf("store s3://%s: %w", u.Host, err)
		}
		l.PathStyle = true
	}
	for name, values := range query {
		switch name {
		case "endpoint":
		case "region":
			l.Region = values[0]
		case "path-style":
			if l.PathStyle, err = strconv.ParseBool(values[0]); err != nil {
				return l, fmt.Errorf("store %q: path-style=%s is not true or false", raw, values[0])
			}
		default:
			return l, fmt.Errorf("store %q: unknown parameter %q; there are endpoint, region and path-style", raw, name)
		}
		if len(values) > 1 {
			return l, fmt.Errorf("store %q: parameter %q is given %d times", raw, name, len(values))
		}
	}
	return l, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("endpoint: %w", err)
	case u.User != nil:
		return errors.New("endpoint has credentials in it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("endpoint %q is no web address; write http://host:port or https://host", endpoint)
	}
	return nil
}

// String is the URL; Parse reads it.
func (l Location) String() string {
	u := url.URL{Scheme: "s3", Host: l.Bucket, Path: l.Prefix}
	if u.Path != "" {
		u.Path = "/" + u.Path
	}
	var query []string
	if l.Endpoint != "" {
		query = append(query, "endpoint="+l.Endpoint)
	}
	if l.Region != "" {
		query = append(query, "region="+url.QueryEscape(l.Region))
	}
	if l.PathStyle != (l.Endpoint != "") {
		query = append(query, fmt.Sprint("path-style=", l.PathStyle))
	}
	u.RawQuery = strings.Join(query, "&")
	return u.String()
}

// server is where the bucket is, for messages.
func (l Location) server() string {
	if l.Endpoint != "" {
		return l.Endpoint
	}
	return "AWS region " + l.Region
}
