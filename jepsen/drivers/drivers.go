// Package drivers has clients in other languages for correctness runs: programs
// that do what lines of JSON on their input say, see workload's driver. They are
// part of this binary and need on the machine only what they are written in, and
// their library.
package drivers

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed librdkafka.py Driver.java
var files embed.FS

// Names of the drivers.
const (
	Librdkafka = "librdkafka"
	Java       = "java"
)

// Environment variables.
const (
	// EnvPython is a Python that has confluent-kafka; default: python3.
	EnvPython = "PYTHON_CLIENTS"
	// EnvJars is the directory with the jars of Kafka's Java clients; default: where
	// deploy/kafka/kafka.sh fetch puts them.
	EnvJars = "KAFKA_LIBS"
)

// Prepare puts a driver into a directory, which it makes, and returns the shell
// command that runs it.
func Prepare(ctx context.Context, name, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of clients: %w", err)
	}
	switch name {
	case Librdkafka:
		file, err := write(dir, "librdkafka.py")
		python := os.Getenv(EnvPython)
		if python == "" {
			python = "python3"
		}
		return fmt.Sprintf("exec %s %s", quote(python), quote(file)), err
	case Java:
		return prepareJava(ctx, dir)
	}
	return "", fmt.Errorf("there is no driver %q", name)
}

func write(dir, name string) (string, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return "", fmt.Errorf("write the client: %w", err)
	}
	return file, nil
}

// jars that the Java driver needs, as patterns.
var jars = []string{"kafka-clients-*", "slf4j-api-*", "jackson-core-*", "jackson-annotations-*", "jackson-databind-*", "lz4-java-*", "snappy-java-*", "zstd-jni-*"}

// prepareJava compiles the driver: a virtual machine that does so at each start
// takes seconds.
func prepareJava(ctx context.Context, dir string) (string, error) {
	libs, err := jarDir()
	if err != nil {
		return "", err
	}
	path, client := []string{dir}, ""
	for _, pattern := range jars {
		found, err := filepath.Glob(filepath.Join(libs, pattern+".jar"))
		if err == nil && len(found) == 0 {
			err = errors.New("not there")
		}
		if err != nil {
			return "", fmt.Errorf("find %s.jar in %s: %w; fetch it with deploy/kafka/kafka.sh fetch, or set %s", pattern, libs, err, EnvJars)
		}
		path = append(path, found...)
		if client == "" { // those of Kafka come first
			client = strings.TrimSuffix(filepath.Base(found[0]), ".jar")
		}
	}
	source, err := write(dir, "Driver.java")
	if err != nil {
		return "", err
	}
	classes := strings.Join(path, string(os.PathListSeparator))
	var out bytes.Buffer
	javac := exec.CommandContext(ctx, "javac", "-cp", classes, "-d", dir, source)
	javac.Stdout, javac.Stderr = &out, &out
	if err := javac.Run(); err != nil {
		return "", fmt.Errorf("compile the Java client: %w\n%s", err, out.Bytes())
	}
	// Its codecs unpack libraries, which one that is killed leaves behind.
	temp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of clients: %w", err)
	}
	return fmt.Sprintf("exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -Xmx256m -Djava.io.tmpdir=%s -cp %s Driver %s", quote(temp), quote(classes), quote(client)), nil
}

// jarDir has Kafka's jars.
func jarDir() (string, error) {
	if dir := os.Getenv(EnvJars); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find Kafka's jars: %w; set %s", err, EnvJars)
	}
	versions, err := filepath.Glob(filepath.Join(cache, "apache-kafka", "*", "kafka-clients-*.jar"))
	if err != nil || len(versions) == 0 {
		return "", fmt.Errorf("there are no jars of Kafka below %s: fetch them with deploy/kafka/kafka.sh fetch, or set %s", cache, EnvJars)
	}
	return filepath.Dir(slices.MaxFunc(versions, byVersion)), nil
}

// byVersion compares names by the numbers in them: 4.10.0 comes after 4.9.0.
func byVersion(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

// numbers are those in the name of a file.
func numbers(file string) []int {
	var list []int
	for _, s := range strings.FieldsFunc(filepath.Base(file), func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(s); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
