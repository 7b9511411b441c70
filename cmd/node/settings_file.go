package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileValue is a setting's text in a YAML file and its line.
type fileValue struct {
	value string
	line  int
}

// readSettingsFile decodes a flat YAML mapping strictly: an unknown key is an
// error that names its line and the nearest key there is.
func readSettingsFile(name string) (map[string]fileValue, error) {
	doc, err := readYAML(name)
	if err != nil {
		return nil, err
	}
	values := make(map[string]fileValue)
	if len(doc.Content) == 0 {
		return values, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, usagef("%s:%d: expected settings such as 'node-id: 1'", name, top.Line)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		if !knownSetting(k.Value) {
			return nil, usagef("%s:%d: unknown key %q%s; 'ponor config print' lists all", name, k.Line, k.Value, meant(k.Value, settingKeys()))
		}
		if prev, ok := values[k.Value]; ok {
			return nil, usagef("%s:%d: %s is set a second time, first in line %d", name, k.Line, k.Value, prev.line)
		}
		text, err := scalarText(v)
		if err != nil {
			return nil, usagef("%s:%d: %s: %w", name, v.Line, k.Value, err)
		}
		values[k.Value] = fileValue{text, k.Line}
	}
	return values, nil
}

// maxSettingsFile bounds a file of settings, in bytes: a wrong file name must not
// cost the machine's memory.
const maxSettingsFile = 1 << 20

// readYAML reads the one document of a file.
func readYAML(name string) (yaml.Node, error) {
	var doc, more yaml.Node
	f, err := os.Open(name)
	if err != nil {
		return doc, usagef("read config file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSettingsFile+1))
	if err != nil {
		return doc, usagef("read config file: %w", err)
	}
	if len(b) > maxSettingsFile {
		return doc, usagef("%s: longer than %d bytes, which no file of settings is", name, maxSettingsFile)
	}
	in := yaml.NewDecoder(bytes.NewReader(b))
	if err := in.Decode(&doc); errors.Is(err, io.EOF) {
		return doc, nil
	} else if err != nil {
		return doc, usagef("%s: %w", name, err)
	}
	switch err := in.Decode(&more); {
	case errors.Is(err, io.EOF):
		return doc, nil
	case err != nil:
		return doc, usagef("%s: %w", name, err)
	}
	return doc, usagef("%s:%d: a second document; settings are in one", name, more.Line)
}

// scalarText is a scalar's text; a sequence of scalars is a list.
func scalarText(v *yaml.Node) (string, error) {
	switch v.Kind {
	case yaml.ScalarNode:
		return plainText(v), nil
	case yaml.SequenceNode:
		var parts []string
		for _, e := range v.Content {
			if e.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("a list of plain values is expected")
			}
			parts = append(parts, plainText(e))
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("a plain value or a list is expected")
}

// plainText is a scalar as it is written; null, in whatever spelling, is empty.
func plainText(v *yaml.Node) string {
	if v.Tag == "!!null" {
		return ""
	}
	return v.Value
}

func knownSetting(key string) bool { return slices.Contains(settingKeys(), key) }

// settingKeys are the names of all settings.
func settingKeys() (keys []string) {
	for _, row := range settingsTable() {
		keys = append(keys, row.key)
	}
	return keys
}
