package s3_test

import (
	"strings"
	"testing"

	"ponor/sharedlog/objstore/s3"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]s3.Location{
		"s3://logs":                          {Bucket: "logs"},
		"s3://logs/":                         {Bucket: "logs"},
		"s3://logs/a/b/":                     {Bucket: "logs", Prefix: "a/b"},
		"s3://logs/a?region=eu-central-1":    {Bucket: "logs", Prefix: "a", Region: "eu-central-1"},
		"s3://logs?path-style=true":          {Bucket: "logs", PathStyle: true},
		"s3://logs?endpoint=http://h:9000":   {Bucket: "logs", Endpoint: "http://h:9000", PathStyle: true},
		"s3://my.logs-1?endpoint=https://h/": {Bucket: "my.logs-1", Endpoint: "https://h/", PathStyle: true},
		"s3://logs/p?endpoint=http://127.0.0.1:9000&region=x&path-style=false": {Bucket: "logs", Prefix: "p", Endpoint: "http://127.0.0.1:9000", Region: "x"},
		"s3://logs?endpoint=http%3A%2F%2Fh%3A9000":                             {Bucket: "logs", Endpoint: "http://h:9000", PathStyle: true},
	} {
		got, err := s3.Parse(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
		if again, err := s3.Parse(got.String()); err != nil || again != want {
			t.Errorf("%s prints as %s, which is %+v, %v", raw, got, again, err)
		}
	}
}

func TestParseSaysWhatToWrite(t *testing.T) {
	for raw, want := range map[string]string{
		"http://logs":                            "not an s3 URL",
		"s3:logs":                                "names no bucket",
		"s3:///prefix":                           "names no bucket",
		"s3://localhost:9000/logs":               "endpoint=",
		"s3://key:secret@logs":                   "AWS_ACCESS_KEY_ID",
		"s3://logs/../x":                         "prefix",
		"s3://logs/a//b":                         "prefix",
		"s3://logs/" + strings.Repeat("x/", 150): "prefix",
		"s3://logs#x":                            "fragment",
		"s3://logs?endpoint=localhost:9000":      "http://host:port",
		"s3://logs?endpoint=http://a:b@h":        "AWS_ACCESS_KEY_ID",
		"s3://logs?endpoint=http://":             "http://host:port",
		"s3://logs?path-style=maybe":             "true or false",
		"s3://logs?profile=x":                    "endpoint, region and path-style",
		"s3://logs?region=a&region=b":            "2 times",
		"s3://logs?region=%zz":                   "region=name",
		"s3://lo gs":                             "s3://bucket/prefix",
	} {
		_, err := s3.Parse(raw)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something with %q", raw, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the secret: %v", raw, err)
		}
	}
}
