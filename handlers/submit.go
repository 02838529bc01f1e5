package handlers

import (
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

func (s *Server) submit(r *call) error {
	req, receipt, err := s.takeJob(r)
	if err != nil {
		return err
	}
	accepted := &job.Job{ID: receipt.JobID, State: receipt.State}
	if req.ExecutionAt != nil {
		accepted.RunAt = *req.ExecutionAt
	}
	r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(accepted)))
	return s.accepted(r, receipt)
}

// takeJob reads a request for a job and has it accepted.
func (s *Server) takeJob(r *call) (req job.Request, receipt job.Receipt, err error) {
	if err := enter(r, s.deps.Admission); err != nil {
		return req, receipt, err
	}
	defer func() { leave(s.deps.Admission, err == nil) }()
	body, err := r.body(false)
	if err != nil {
		return req, receipt, err
	}
	key, err := r.idempotencyKey()
	if err != nil {
		return req, receipt, err
	}
	if req, err = decodeSubmit(body, key, s.cfg.MaxPayloadBytes); err != nil {
		return req, receipt, err
	}
	s.provenance(r).complete(&req)
	req.ClientID, req.RequestID, req.ReceivedAt = r.caller.ClientID, r.idText, s.receivedAt()
	receipt, err = s.deps.Jobs.Submit(r.ctx, req)
	return req, receipt, err
}

// enter refuses a submission while too many wait, before it costs anything more.
// Its sender is known by then: how busy the server is, strangers do not learn.
func enter(r *call, a Admission) error {
	if a == nil {
		return nil
	}
	err := a.Enter()
	r.crowded = err != nil
	return err
}

// leave ends the wait of a submission that entered.
func leave(a Admission, accepted bool) {
	if a != nil {
		a.Leave(accepted)
	}
}

// receivedAt is the time of a request, as precise as storage keeps it.
func (s *Server) receivedAt() time.Time { return s.deps.Clock().UTC().Truncate(time.Microsecond) }

// accepted answers 202 with the address to poll. A client that is willing to
// wait gets 200 with the job if that ends in time. From here on nothing is an
// error: the job is accepted.
func (s *Server) accepted(r *call, receipt job.Receipt) error {
	r.jobID = receipt.JobID
	r.acceptedAt(jobPath(receipt.JobID), receipt.Replayed)
	w := r.wishes()
	j, err := s.await(r, w, receipt.JobID, func(j *job.Job) bool { return j.State.Final() })
	if err == nil && j != nil && j.State.Final() {
		r.Response().Header.Del(fiber.HeaderRetryAfter) // it was for polling
		w.tell(r)
		return s.sendJob(r, j)
	}
	if err != nil { // a replayed job may be gone: it was not waited for
		w.applied = nil
	}
	if err == nil && j != nil {
		receipt.State = j.State
	}
	w.applyAsync()
	w.tell(r)
	r.sendReceipt(receiptView{receipt.JobID, receipt.State, job.Time(receipt.CreatedAt)})
	return nil
}

// acceptedAt tells where to look for what was accepted.
func (r *call) acceptedAt(path string, replayed bool) {
	r.Set(fiber.HeaderLocation, path)
	r.relate(path, "status")
	if replayed {
		r.Set("Idempotency-Replayed", "true")
	}
}

// idempotencyKey gives the Idempotency-Key header, "" if there is none. The
// header is a quoted string by its draft; the bare word means the same key.
func (r *call) idempotencyKey() (string, error) {
	lines := r.Request().Header.PeekAll("Idempotency-Key")
	if len(lines) == 0 {
		return "", nil
	}
	key, ok := parseKeyHeader(string(lines[0]))
	if !ok || len(lines) > 1 {
		return "", job.Errorf(job.CodeMalformed, "The Idempotency-Key header must be one key: "+keyForm)
	}
	return key, nil
}

const (
	maxKeyBytes = 255
	keyForm     = "1 to 255 visible ASCII characters."
)

// parseKeyHeader reads a bare key or a structured-field string (RFC 9651,
// section 3.3.3).
func parseKeyHeader(value string) (string, bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, validKey(value)
	}
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"':
			return key.String(), i == len(value)-1 && validKey(key.String())
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			c = value[i]
		}
		key.WriteByte(c)
	}
	return "", false
}

func validKey(key string) bool {
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return false
		}
	}
	return 0 < len(key) && len(key) <= maxKeyBytes
}
