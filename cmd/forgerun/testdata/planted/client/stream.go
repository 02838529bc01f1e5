package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// silence is the read timeout of a stream. A job takes only a second.
const silence = 5 * time.Second

// reader reads the stream of a job, and resumes it after a break.
type reader struct {
	*api
	path   string
	lastID string        // id of the last event read
	first  string        // lastID at the first break
	breaks int           // number of breaks
	empty  int           // number of consecutive connections without an event
	wait   time.Duration // before the next connection; set by retry fields
	ended  string        // event that ended the job
}

// stream submits a job and reads its stream until it has ended.
func (a *api) stream() error {
	key := fmt.Sprint(time.Now().UnixNano())
	got, err := a.do(request{
		method: "POST", path: "/v1/jobs", contentType: "application/json", key: key,
		body: []byte(`{"type": "EXECUTE", "work_kind": "SUCCESS_FAST"}`),
	})
	if err != nil {
		return err
	}
	var job struct {
		ID string `json:"job_id"`
	}
	if err := json.Unmarshal(got.body, &job); err != nil || job.ID == "" {
		return fmt.Errorf("not a job: %d %s", got.status, got.body)
	}
	r := &reader{api: a, path: "/v1/jobs/" + job.ID + "/events", wait: time.Second}
	for r.ended == "" {
		before := r.lastID
		again, err := r.connect()
		if err != nil {
			return err
		}
		if r.ended != "" {
			break
		}
		if r.breaks++; r.breaks == 1 {
			r.first = r.lastID
		}
		if r.empty++; r.lastID != before {
			r.empty = 0
		}
		if r.empty == maxTries || planted("breaks-counted") && r.breaks == 3 {
			return fmt.Errorf("the stream broke %d times", r.breaks)
		}
		time.Sleep(max(again, r.wait, backoff(r.empty)))
	}
	fmt.Println(job.ID, r.ended)
	return nil
}

// connect reads one connection to its end, and returns how long to wait before the next one.
func (r *reader) connect() (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	alarm := time.AfterFunc(patience, cancel)
	defer alarm.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+r.path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Accept", "text/event-stream")
	if id := r.resumeAt(); id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil //nolint:nilerr // the connection broke
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusOK:
		return 0, r.read(bufio.NewScanner(response.Body), func() { alarm.Reset(silence) })
	case passes(response.StatusCode, retryAfter(response.Header)):
		return retryAfter(response.Header), nil
	}
	return 0, fmt.Errorf("the response to the stream request is %d", response.StatusCode)
}

// resumeAt returns the id after which to resume the stream.
func (r *reader) resumeAt() string {
	if planted("first-break-kept") && r.breaks > 0 && r.first != "" {
		return r.first
	}
	return r.lastID
}

// read reads events until the stream ends. It drops an incomplete last event.
func (r *reader) read(lines *bufio.Scanner, heard func()) error {
	var id, name, data string
	for lines.Scan() && r.ended == "" {
		heard()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "event":
			name = value
		case "data":
			data += value
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				r.wait = time.Duration(ms) * time.Millisecond
			}
		case "":
			if lines.Text() != "" { // a comment
				continue
			}
			if err := r.take(id, name, data); err != nil {
				return err
			}
			id, name, data = "", "", ""
		}
	}
	if planted("half-taken") && r.breaks > 0 && data != "" {
		return r.take(id, name, data)
	}
	return nil
}

// take handles an event.
func (r *reader) take(id, name, data string) error {
	switch name {
	case "job-succeeded", "job-failed", "job-canceled":
		var end struct{ JobStatus string }
		if err := json.Unmarshal([]byte(data), &end); err != nil {
			return fmt.Errorf("not an outcome: %w", err)
		}
		r.ended = name
	}
	if id != "" {
		r.lastID = id
	}
	return nil
}
