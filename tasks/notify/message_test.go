package notify

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestLine(t *testing.T) {
	t.Parallel()
	client, id := redistest.Task().JobID, redistest.Task().JobID
	p := &job.Progress{Percentage: 40, Phase: "a\nb c", StepsCompleted: 4, StepsTotal: 10, UpdatedAt: time.Unix(1, 5000).UTC()}
	encoded := redistest.Must(json.Marshal(p))(t)
	for _, n := range []job.Notification{
		{ClientID: client, JobID: id},
		{ClientID: client},
		{ClientID: client, JobID: id, Attempt: 3, Progress: p},
	} {
		text := appendLine(nil, n.JobID, 0, nil)
		if n.Progress != nil {
			text = appendLine(nil, n.JobID, n.Attempt, encoded)
		}
		line, ended := strings.CutSuffix(string(text), "\n")
		require.True(t, ended)
		require.NotContains(t, line, "\n")
		got, err := parseLine(client, line)
		require.NoError(t, err, line)
		require.Equal(t, n, got)
	}
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	id := redistest.Task().JobID.String()
	for _, line := range []string{
		"", " ", "--", id[1:], id + " ", id + " 1", id + " 1 ", id + " 1 null", id + " 1 {", id + " 0 {}", id + " -1 {}",
		id + " x {}", "- 1 {}", " " + id, "{" + id + "}", id + " 1 []", id + ` 1 {"percentage":101}`,
		id + ` 1 {"percentage":-1}`, id + ` 1 {"items_total":-1}`, id + ` 1 {"percentage":1} {}`,
		id + ` 1 {"updated_at":"yesterday"}`, id + " 99999999999999999999 {}", id + "\r",
	} {
		got, err := parseLine(job.ID{1}, line)
		require.ErrorIs(t, err, errBadLine, "%q", line)
		require.Zero(t, got)
	}
}
