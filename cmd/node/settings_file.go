package main

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"ponor/internal/editdistance"
)

// fileValue is a setting's text in a YAML file and its line.
type fileValue struct {
	value string
	line  int
}

// readSettingsFile decodes a flat YAML mapping strictly: an unknown key is an
// error that names its line and the nearest key there is.
func readSettingsFile(name string) (map[string]fileValue, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("read config file: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, usagef("%s: %w", name, err)
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
			return nil, usagef("%s:%d: unknown key %q (did you mean %q?)", name, k.Line, k.Value, nearestSetting(k.Value))
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

// scalarText is a scalar's text; a sequence of scalars is a list.
func scalarText(v *yaml.Node) (string, error) {
	switch v.Kind {
	case yaml.ScalarNode:
		return v.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, e := range v.Content {
			if e.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("a list of plain values is expected")
			}
			parts = append(parts, e.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("a plain value or a list is expected")
}

func knownSetting(key string) bool {
	for _, row := range settingsTable() {
		if row.key == key {
			return true
		}
	}
	return false
}

// nearestSetting is the setting with the smallest edit distance to key.
func nearestSetting(key string) string {
	best, bestDist := "", 1<<30
	for _, row := range settingsTable() {
		if d := editdistance.Of(key, row.key); d < bestDist {
			best, bestDist = row.key, d
		}
	}
	return best
}
