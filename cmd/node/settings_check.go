package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ponor/sharedlog/objstore/s3"
)

// settingError is a setting that can be read and cannot work. Whoever knows
// where it was set adds that.
type settingError struct {
	key string
	err error
}

func (e *settingError) Error() string { return e.key + ": " + e.err.Error() }

func (e *settingError) Unwrap() error { return e.err }

func wrongSetting(key, format string, args ...any) error {
	return &settingError{key, fmt.Errorf(format, args...)}
}

// controller says whether the node votes in the metadata quorum.
func (s *settings) controller() bool {
	for r := range strings.SplitSeq(s.Roles, ",") {
		if strings.TrimSpace(r) == "controller" {
			return true
		}
	}
	return false
}

// check completes the defaults that depend on others and refuses what cannot
// work, with what to do instead.
func (s *settings) check() error {
	broker := false
	for r := range strings.SplitSeq(s.Roles, ",") {
		switch strings.TrimSpace(r) {
		case "broker":
			broker = true
		case "controller":
		default:
			return wrongSetting("roles", "%q: %q is neither broker nor controller", s.Roles, r)
		}
	}
	if !broker {
		return wrongSetting("roles", "%q: every node is a broker; write broker or broker,controller", s.Roles)
	}
	if !s.controller() && len(s.Join) == 0 {
		return wrongSetting("roles", "%q without join: a node that is not a controller needs the controllers' addresses, --join host:port,...", s.Roles)
	}
	if n := len(s.Join); n > 9 {
		return wrongSetting("join", "it names %d controllers: the first voters are 1, 3 or 5 (more cost latency, even numbers add no safety)", n)
	}
	if err := s.checkAddresses(); err != nil {
		return err
	}
	if err := s.checkQuorum(); err != nil {
		return err
	}
	if s.SessionTimeout < 500*time.Millisecond {
		return wrongSetting("session-timeout", "%v: brokers would lose their partitions at every hiccup; use 500ms or more", s.SessionTimeout)
	}
	if s.CacheBytes < 8<<20 {
		return wrongSetting("cache-bytes", "a node needs 8MiB or more")
	}
	if s.WALBudget < 8<<20 {
		return wrongSetting("wal-budget", "a node needs 8MiB or more")
	}
	if s.PackBytes != 0 && (s.PackBytes < 1<<20 || s.PackBytes > 1<<30) {
		return wrongSetting("pack-bytes", "write auto or a size from 1MiB to 1GiB, beyond which producers are pushed back")
	}
	if err := s.checkStore(); err != nil {
		return err
	}
	if _, err := s.level(); err != nil {
		return err
	}
	if s.LogFormat != "auto" && s.LogFormat != "text" && s.LogFormat != "json" {
		return wrongSetting("log-format", "%q: text, json or auto", s.LogFormat)
	}
	return nil
}

// checkAddresses refuses what is no host:port, and 0 for a port that others dial.
func (s *settings) checkAddresses() error {
	listen := [][2]string{{"listen", s.Listen}, {"metrics-listen", s.MetricsListen}, {"debug-listen", s.DebugListen}}
	dial := [][2]string{{"advertise", s.Advertise}}
	if s.controller() {
		listen = append(listen, [2]string{"controller-listen", s.ControllerListen})
		dial = append(dial, [2]string{"controller-advertise", s.ControllerAdvert})
	}
	for _, a := range s.Join {
		dial = append(dial, [2]string{"join", a})
	}
	if s.Listen == "" {
		return wrongSetting("listen", "it is empty: write host:port, such as 127.0.0.1:9092")
	}
	for i, a := range append(listen, dial...) {
		if a[1] == "" {
			continue
		}
		low := 0
		if i >= len(listen) {
			low = 1
		}
		if err := checkAddress(a[1], low); err != nil {
			return wrongSetting(a[0], "%w", err)
		}
	}
	return s.checkAdvertised()
}

// checkAdvertised makes sure that clients are told an address that they can dial.
func (s *settings) checkAdvertised() error {
	key, told := "listen", s.Listen
	if s.Advertise != "" {
		key, told = "advertise", s.Advertise
	}
	host, port, err := net.SplitHostPort(told)
	if err != nil {
		return nil //nolint:nilerr // was checked
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "host"
		}
		return wrongSetting(key, "%s is all interfaces, which clients cannot dial: say what they are to dial with --advertise host:port, such as --advertise %s:%s, or 127.0.0.1:%s for this machine alone", told, name, port, port)
	}
	return nil
}

// checkAddress says what is wrong with a host:port; low is the lowest port.
func checkAddress(address string, low int) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: write host:port, such as 127.0.0.1:9092", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < low || n > 65535 {
		return fmt.Errorf("address %q: the port is a number from %d to 65535", address, low)
	}
	return nil
}

// checkQuorum makes sure that a controller is one of those it joins.
func (s *settings) checkQuorum() error {
	if !s.controller() {
		return nil
	}
	key, own := "controller-listen", s.ControllerListen
	if s.ControllerAdvert != "" {
		key, own = "controller-advertise", s.ControllerAdvert
	}
	host, _, err := net.SplitHostPort(own)
	if err != nil {
		return wrongSetting(key, "address %q: write host:port", own)
	}
	if ip := net.ParseIP(host); len(s.Join) > 1 && (host == "" || ip != nil && ip.IsUnspecified()) {
		return wrongSetting(key, "other nodes cannot dial %s: with --controller-listen on all interfaces say --controller-advertise host:port, as in --join", own)
	}
	if n := len(s.Join); slices.Contains(s.Join, own) && (n > 5 || n == 2 || n == 4) {
		return wrongSetting("join", "it names %d controllers, this one too: the first voters are 1, 3 or 5; a node that is to get its vote later is not in its own list", n)
	}
	return nil
}

func (s *settings) checkStore() error {
	if s.Store == "" {
		if len(s.Join) > 1 || !s.controller() {
			return wrongSetting("store", "it is not set: the nodes of a cluster share one, such as --store dir:///srv/ponor/store or --store s3://bucket/prefix")
		}
		abs, err := filepath.Abs(s.DataDir)
		if err != nil {
			return wrongSetting("data-dir", "find it: %w", err)
		}
		s.Store = "dir://" + filepath.Join(abs, "store")
	}
	u, err := url.Parse(s.Store)
	if err != nil {
		return wrongSetting("store", "%q: %w", s.Store, err)
	}
	switch u.Scheme {
	case "mem":
		if len(s.Join) > 1 || !s.controller() {
			return wrongSetting("store", "mem: is memory of one process; the nodes of a cluster need a shared store, such as dir:///srv/ponor/store")
		}
	case "dir":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return wrongSetting("store", "%q: write an absolute path with three slashes, such as dir:///srv/ponor/store", s.Store)
		}
	case "s3":
		if _, err := s3.Parse(s.Store); err != nil {
			return wrongSetting("store", "%w", err)
		}
	default:
		return wrongSetting("store", "%q: unknown kind; %s", s.Store, storeKinds)
	}
	return nil
}

// level is the log level.
func (s *settings) level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return 0, wrongSetting("log-level", "%q: debug, info, warn or error", s.LogLevel)
	}
	return l, nil
}
