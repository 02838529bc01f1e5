package notify

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// A message has a line for each notification: "<job id>" for an event, "<job id> <attempt> <progress as JSON>" for progress, with
// noJob in place of the id for no job. Each client has a channel, which all databases of a Redis share.
const (
	eventPrefix = "forgerun:news:"
	noJob       = "-"
)

var errBadLine = errors.New("not a line of a message")

func eventChannel(client job.ID) string { return eventPrefix + client.String() }

func clientOf(channel string) (job.ID, error) {
	return job.ParseID(strings.TrimPrefix(channel, eventPrefix))
}

// appendLine takes the progress as JSON, which has no line breaks; nil for an event.
func appendLine(text []byte, id job.ID, attempt int, progress []byte) []byte {
	if id.IsZero() {
		text = append(text, noJob...)
	} else {
		text = append(text, id.String()...)
	}
	if progress != nil {
		text = append(strconv.AppendInt(append(text, ' '), int64(attempt), 10), ' ')
		text = append(text, progress...)
	}
	return append(text, '\n')
}

// parseLine reads a line, without its end, from the client's channel.
func parseLine(client job.ID, line string) (job.Notification, error) {
	n := job.Notification{ClientID: client}
	subject, rest, more := strings.Cut(line, " ")
	var err error
	if subject != noJob {
		if n.JobID, err = job.ParseID(subject); err != nil {
			return job.Notification{}, errBadLine
		}
	}
	if !more {
		return n, nil
	}
	attempt, progress, _ := strings.Cut(rest, " ")
	n.Attempt, err = strconv.Atoi(attempt)
	n.Progress = parseProgress([]byte(progress))
	if err != nil || n.Attempt < 1 || n.JobID.IsZero() || n.Progress == nil {
		return job.Notification{}, errBadLine
	}
	return n, nil
}

// parseProgress gives nil for what no worker would have written.
func parseProgress(text []byte) *job.Progress {
	var p *job.Progress
	if json.Unmarshal(text, &p) != nil || p == nil || p.Percentage > 100 ||
		min(p.Percentage, p.StepsCompleted, p.StepsTotal) < 0 || min(p.ItemsProcessed, p.ItemsTotal) < 0 {
		return nil
	}
	return p
}
