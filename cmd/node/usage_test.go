package main

import (
	"strings"
	"testing"
)

// Every mistake on the command line says what is wrong and what to write.
func TestMistakesOnTheCommandLine(t *testing.T) {
	for line, want := range map[string][]string{
		"topik":                                    {`'ponor' has no command "topik" (did you mean topic?)`, "there are "},
		"topic lst":                                {`'ponor topic' has no command "lst" (did you mean list?)`, "create, delete, describe, list, move"},
		"topic zzzzz":                              {`'ponor topic' has no command "zzzzz"; there are`},
		"topic create":                             {"NAME is missing: write 'ponor topic create NAME...'", "Try 'ponor topic create --help'"},
		"topic list orders":                        {`"orders" is one argument too many: write 'ponor topic list'`},
		"topic move --to 1":                        {"TOPIC[/PARTITION] is missing"},
		"quorum add":                               {"NODE is missing: write 'ponor quorum add NODE'"},
		"quorum add 1 2":                           {`"2" is one argument too many: write 'ponor quorum add NODE'`},
		"quorum add one":                           {`"one" is not a node id`},
		"topic list --bootstap x":                  {"unknown flag: --bootstap (did you mean --bootstrap?)"},
		"topic list --boot x":                      {"(did you mean --bootstrap?)"},
		"topic list -z":                            {"unknown shorthand flag: 'z'"},
		"topic list --timeout soon":                {"--timeout", "soon"},
		"topic list --bootstrap=":                  {"--bootstrap is empty: give it a broker's address, such as 127.0.0.1:9092"},
		"quorum remove 1 --bootstrap=":             {"--bootstrap is empty"},
		"metadata restore":                         {"FILE is missing: write 'ponor metadata restore FILE'"},
		"metadata restore f":                       {"--store is missing"},
		"dump wal":                                 {"FILE|URL#KEY is missing"},
		"start --listen 0.0.0.0:9092":              {"listen (flag --listen)", "0.0.0.0:9092 is all interfaces", "--advertise host:port", ":9092 for this machine alone"},
		"start --advertise [::]:9092":              {"advertise (flag --advertise)", "which clients cannot dial"},
		"start --listen :99999":                    {"listen (flag --listen)", `":99999"`, "a number from 0 to 65535"},
		"start --listen 9092":                      {`"9092": write host:port`},
		"start --advertise broker-1:0":             {"advertise (flag --advertise)", "from 1 to 65535"},
		"start --metrics-listen 9292":              {"metrics-listen", "write host:port"},
		"start --cache-bytes 9999999999GiB":        {`"9999999999GiB" is too large`},
		"start --cache-bytes 99999999999999999999": {"is too large"},
		"start --cache-bytes 1.5GiB":               {`"1.5GiB" is not a size such as 64MiB`, "KiB, MiB, GiB or TiB"},
	} {
		code, out, errOut := ponor(t, strings.Fields(line)...)
		if code != exitUsage || out != "" {
			t.Errorf("%s: exit %d, output %q", line, code, out)
		}
		for _, w := range want {
			if !strings.Contains(errOut, w) {
				t.Errorf("%s: %q is missing in: %s", line, w, errOut)
			}
		}
	}
}

func TestMistypedVariablesAreNotIgnored(t *testing.T) {
	t.Setenv("PONOR_SERVICE_HOST", "10.0.0.1") // as Kubernetes sets them
	t.Setenv("PONOR_PORT_9092_TCP_ADDR", "10.0.0.1")
	if code, _, errOut := ponor(t, "config", "print"); code != exitOK || errOut != "" {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	t.Setenv("PONOR_FLAVOUR", "sweet")
	if code, _, errOut := ponor(t, "config", "print"); code != exitOK || !strings.Contains(errOut, "PONOR_FLAVOUR is not read by anything; 'ponor config print' lists the settings") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	for name, want := range map[string]string{"PONOR_LISTENN": "PONOR_LISTEN?", "PONOR_LOGLEVEL": "PONOR_LOG_LEVEL?", "PONOR_BOOTSTRAPS": "PONOR_BOOTSTRAP?", "PONOR_CACHE": "PONOR_CACHE_BYTES?"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "x")
			code, _, errOut := ponor(t, "config", "print")
			if code != exitUsage || !strings.Contains(errOut, name+" is not read by anything (did you mean "+want) {
				t.Errorf("exit %d, %s", code, errOut)
			}
		})
	}
}
