package handlers

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
)

func TestExamplesOfRequestsAreValid(t *testing.T) {
	t.Parallel()
	type operation struct {
		ID   string `yaml:"operationId"`
		Body struct {
			Content map[string]struct {
				Examples map[string]struct{ Value any }
			}
		} `yaml:"requestBody"`
	}
	var document struct {
		Paths map[string]struct{ Post, Put, Patch operation }
	}
	require.NoError(t, yaml.Unmarshal(docs.OpenAPI, &document))
	w := newWorld(t, func(c *Config, _ *Deps) { c.TestBed = true })
	sent := 0
	for path, item := range document.Paths {
		for method, o := range map[string]operation{"POST": item.Post, "PUT": item.Put, "PATCH": item.Patch} {
			if o.ID == "makeFixtures" || o.ID == "moveClock" {
				continue // makeFixtures waits for workers, and moveClock would move the times of other examples into the past
			}
			for media, content := range o.Body.Content {
				for name, example := range content.Examples {
					body, err := json.Marshal(example.Value)
					require.NoError(t, err)
					w.freshen() // removes the fault rules of earlier examples
					a := w.send(method, backend.Path(path), string(body), "Content-Type", media)
					require.NotEqual(t, http.StatusBadRequest, a.StatusCode, "%s, %s: %s", o.ID, name, a.text)
					sent++
				}
			}
		}
	}
	require.Greater(t, sent, 20)
}
