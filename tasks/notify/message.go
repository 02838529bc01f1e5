package notify

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// A message has a line for each notification: "<job id>" when an event was
// recorded, "<job id> <attempt> <progress as JSON>" for progress, and noJob in
// place of the id for one of no job. Each client has a channel. Channels are
// shared by all databases of a Redis.
const (
	eventPrefix = "forgerun:news:"
	noJob       = "-"
)

var errBadLine = errors.New("not a line of a message")

func eventChannel(client job.ID) string { return eventPrefix + client.String() }

func clientOf(channel string) (job.ID, error) {
	return job.ParseID(strings.TrimPrefix(channel, eventPrefix))
}

// appendLine takes the progress as JSON, which has no line breaks; nil for an
// event.
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
	if subject != noJob {
		var err error
		if n.JobID, err = job.ParseID(subject); err != nil {
			return job.Notification{}, errBadLine
		}
	}
	if !more {
		return n, nil
	}
	attempt, progress, _ := strings.Cut(rest, " ")
	var err error
	if n.Attempt, err = strconv.Atoi(attempt); err != nil || n.Attempt < 1 || n.JobID.IsZero() {
		return job.Notification{}, errBadLine
	}
	if n.Progress, err = parseProgress([]byte(progress)); err != nil {
		return job.Notification{}, errBadLine
	}
	return n, nil
}

// parseProgress refuses what no worker would have written.
func parseProgress(text []byte) (*job.Progress, error) {
	var p *job.Progress
	if err := json.Unmarshal(text, &p); err != nil || !plausible(p) {
		return nil, errBadLine
	}
	return p, nil
}

func plausible(p *job.Progress) bool {
	return p != nil && p.Percentage >= 0 && p.Percentage <= 100 &&
		p.StepsCompleted >= 0 && p.StepsTotal >= 0 && p.ItemsProcessed >= 0 && p.ItemsTotal >= 0
}
