package model_test

import (
	"testing"

	"ponor/metadata/model"
)

func TestMutations(t *testing.T) {
	for _, c := range model.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.World.StateLimit = 3_000_000
			r, err := model.Explore(c.World, c.Mutation)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r)
			if r.Violation == nil {
				t.Error("not found")
			}
		})
	}
}
