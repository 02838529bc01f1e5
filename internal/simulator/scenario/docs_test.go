package scenario_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

const page = "../../../docs/reference/simulator.md"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

var listItem = regexp.MustCompile("(?m)^- `([^`]+)`, ")

func listed(t *testing.T, text, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n"+heading+"\n")
	require.True(t, ok, "no heading %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, item := range listItem.FindAllStringSubmatch(section, -1) {
		names = append(names, item[1])
	}
	return names
}

func TestPageListsTheReadyMadeScenarios(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, scenario.Names(), listed(t, read(t, page), "## Ready-made scenarios"))
}

func TestExamplesOnThePageAreValid(t *testing.T) {
	t.Parallel()
	blocks := strings.Split(read(t, page), "```yaml\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		text, _, ok := strings.Cut(block, "```")
		require.True(t, ok)
		_, err := scenario.Parse("example.yaml", []byte(text))
		require.NoError(t, err)
	}
}

func TestSettingsMatchService(t *testing.T) {
	t.Parallel()
	// A scenario must not set these variables. The simulator sets them, or another member of the scenario does.
	excluded := []string{
		"FORGERUN_DATABASE_URL", "FORGERUN_REDIS_URL", "FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR", "FORGERUN_PUBLIC_URL",
		"FORGERUN_ADMIN_TOKEN", "FORGERUN_ADMIN_READ_TOKEN", "FORGERUN_MASK_PARAMS", "FORGERUN_CORS_ORIGINS",
		"FORGERUN_OPEN_REGISTRATION", "FORGERUN_TRACE_URL", "FORGERUN_DATA_DIR",
		"FORGERUN_LOG_FORMAT",
		"FORGERUN_WORKER_CONCURRENCY", "FORGERUN_TIME_SCALE", "FORGERUN_MASTER_KEY",
	}
	var service []string
	setting := regexp.MustCompile(`(?m)^\| (FORGERUN_[A-Z_]+) \|`)
	for _, row := range setting.FindAllStringSubmatch(read(t, "../../../docs/reference/configuration.md"), -1) {
		service = append(service, row[1])
	}
	var schema struct {
		Properties struct {
			Service struct {
				Properties struct {
					Env struct{ Properties map[string]any }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(scenario.Schema(), &schema))
	allowed := slices.Collect(maps.Keys(schema.Properties.Service.Properties.Env.Properties))
	require.ElementsMatch(t, service, append(allowed, excluded...))
}
