package handlers

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// call is one request on its way through its route.
type call struct {
	*fiber.Ctx
	ctx    context.Context // ends with the request timeout
	route  *route
	id     job.ID // of the request
	start  time.Time
	caller job.Caller
	jobID  job.ID   // zero where no job is concerned
	failed *problem // nil unless the answer is a problem
}

// nobody is the Max UUID, which is never issued (RFC 9562, section 5.10). A
// malformed id in a path becomes it, so that it takes the very way of an
// unknown one and the two cannot be told apart.
var nobody = job.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// pathID gives the id in the path.
func (r *call) pathID() job.ID {
	id, err := job.ParseID(r.Params("id"))
	if err != nil {
		return nobody
	}
	return id
}

// pathJob gives the job's id in the path, and notes it for the log.
func (r *call) pathJob() job.ID {
	r.jobID = r.pathID()
	return r.jobID
}

// checkQuery refuses query parameters that the route does not know.
func (r *call) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	if r.route.query == "" {
		return job.Errorf(job.CodeMalformed, "This resource has no query parameters.")
	}
	seen := 0
	for name := range r.Request().URI().QueryArgs().All() {
		if seen++; seen > 1 || string(name) != r.route.query {
			return job.Errorf(job.CodeMalformed, "This resource has one query parameter, %s, which may be given once.", r.route.query)
		}
	}
	return nil
}

// maxAttemptDigits keeps attempt numbers within every integer type.
const maxAttemptDigits = 9

// parseAttempt reads an attempt number: a positive integer in plain digits.
func parseAttempt(s string) (int, bool) {
	if s == "" || len(s) > maxAttemptDigits || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// list gives a header that is a comma-separated list, all its lines joined.
func (r *call) list(name string) string {
	lines := r.Request().Header.PeekAll(name)
	switch len(lines) {
	case 0:
		return ""
	case 1:
		return string(lines[0])
	}
	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = string(line)
	}
	return strings.Join(values, ",")
}

// json answers with v as application/json.
func (r *call) json(status int, v any) error {
	return r.send(status, fiber.MIMEApplicationJSON, v)
}

// send answers with v as JSON of the given media type.
func (r *call) send(status int, media string, v any) error {
	r.Response().ResetBody()
	encoder := json.NewEncoder(r.Response().BodyWriter())
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	r.Status(status)
	r.Set(fiber.HeaderContentType, media)
	return nil
}
