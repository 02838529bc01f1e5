package handlers

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// owner is what the deliveries of a path belong to.
func (r *call) owner() job.DeliveryOwner {
	return job.DeliveryOwner{WebhookID: r.webhook, JobID: r.jobID}
}

// listDeliveries answers with a page of an owner's deliveries, newest first.
func (s *Server) listDeliveries(r *call) (err error) {
	q := job.DeliveryQuery{
		Owner: r.owner(), State: job.DeliveryState(r.Query("state")), EventName: r.Query("event_name"),
		CreatedAfter: r.queryTime("created_after"), CreatedBefore: r.queryTime("created_before"),
		Limit: r.queryLimit(query.DefaultLimit),
	}
	path := deliveriesPath(q.Owner)
	scope := path + "?" + r.filters()
	if q.After, err = s.cursorID(r, scope); err != nil {
		return err
	}
	page, err := s.deps.Deliveries.Deliveries(r.ctx, r.caller.ClientID, q)
	if err != nil {
		return err
	}
	return sendPage(s, r, scope, page.Deliveries, page.Next, func(d job.Delivery) deliveryView { return s.deliveryViewOf(path, &d) })
}

// getDelivery answers with a delivery and all its attempts.
func (s *Server) getDelivery(r *call) error {
	d, attempts, err := s.deps.Deliveries.Delivery(r.ctx, r.caller.ClientID, r.owner(), r.idOf("delivery_id"))
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, s.loggedDeliveryViewOf(deliveriesPath(r.owner()), d, attempts))
}

func (s *Server) redeliver(r *call) error {
	return r.acceptedDelivery(s.deps.Deliveries.Redeliver(r.ctx, r.caller.ClientID, r.owner(), r.idOf("delivery_id")))
}

// acceptedDelivery answers 202 with a delivery that is on its way, unless it was
// refused.
func (r *call) acceptedDelivery(d *job.Delivery, err error) error {
	if err != nil {
		return err
	}
	path := deliveriesPath(r.owner())
	r.acceptedAt(path+"/"+d.ID.String(), false)
	return r.json(fiber.StatusAccepted, r.server.deliveryViewOf(path, d))
}

// redeliverFailed needs no position: what it has sent again is FAILED no more.
func (s *Server) redeliverFailed(r *call) error {
	return s.resend(r, "redeliver", func(ctx context.Context, client, id job.ID, since time.Time, _ job.Position) (job.Replay, error) {
		return s.deps.Deliveries.RedeliverFailed(ctx, client, id, since)
	})
}

func (s *Server) replayWebhook(r *call) error {
	return s.resend(r, "replay", s.deps.Deliveries.Replay)
}

var errBadReplayCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor is not one of this replay.",
	Violations: []job.Violation{{Pointer: "/cursor",
		Detail: "This must be the next_cursor of the answer before, unchanged and with the same since; leave it out to start anew."}},
}

// resend has a webhook sent again what it missed since a time, from the
// cursor on. The cursor belongs to the webhook, the action and the time. The
// secret of cursors is read on behalf of all requests, so not in the transaction
// of this one.
func (s *Server) resend(
	r *call, action string, send func(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error),
) error {
	client, id := r.caller.ClientID, r.webhook
	body, err := r.body(false)
	if err != nil {
		return err
	}
	since, cursor, err := decode.Since(body)
	if err != nil {
		return err
	}
	var after job.Position
	scope := webhookPath(id) + "/" + action + "?" + since.Format(time.RFC3339Nano)
	if cursor != nil {
		position, err := s.openCursor(r.base, client, scope, *cursor, positionBytes)
		if errors.Is(err, query.ErrBadCursor) {
			return errBadReplayCursor
		}
		if err != nil {
			return err
		}
		after = positionOf(position)
	}
	replay, err := send(r.ctx, client, id, since, after)
	if err != nil {
		return err
	}
	answer := replayView{Queued: replay.Queued}
	if replay.More {
		next, err := s.sealCursor(r.base, client, scope, positionBytesOf(replay.Next))
		if err != nil {
			return err
		}
		answer.NextCursor = &next
	}
	return r.json(fiber.StatusAccepted, answer)
}

// deliveryView is a delivery: to a webhook, or to the callback of a job.
type deliveryView struct {
	DeliveryID    job.ID            `json:"delivery_id"`
	WebhookID     *job.ID           `json:"webhook_id"` // null for a callback
	URL           *string           `json:"url"`        // of a callback
	JobID         *job.ID           `json:"job_id"`     // null for an event of no job, and so is seq
	EventID       job.ID            `json:"event_id"`
	EventName     string            `json:"event_name"`
	Seq           *int              `json:"seq"`
	State         job.DeliveryState `json:"state"`
	Attempts      int               `json:"attempts"`
	NextAttemptAt *job.Time         `json:"next_attempt_at"` // null unless PENDING
	CreatedAt     job.Time          `json:"created_at"`
	SettledAt     *job.Time         `json:"settled_at"` // null while PENDING
	LastStatus    *int              `json:"last_status"`
	LastError     *causeView        `json:"last_error"`
	Links         deliveryLinksView `json:"links"`
}

type deliveryLinksView struct {
	Self      string `json:"self"`
	Redeliver string `json:"redeliver"`
}

// loggedDeliveryView is a delivery with what was sent and answered.
type loggedDeliveryView struct {
	deliveryView
	Log []tryView `json:"attempts_log"`
}

// tryView is one attempt to deliver.
type tryView struct {
	Number     int           `json:"number"`
	StartedAt  job.Time      `json:"started_at"`
	DurationMS int64         `json:"duration_ms"`
	Status     *int          `json:"status"`   // null without an answer
	Error      *causeView    `json:"error"`    // null if it was delivered
	Response   *receivedView `json:"response"` // null without an answer
}

// receivedView is what a receiver answered. A body that is not text is shown
// in base64.
type receivedView struct {
	Headers    map[string][]string `json:"headers"`
	Body       *string             `json:"body"` // null if body_base64 is there
	BodyBase64 string              `json:"body_base64,omitempty"`
	Truncated  bool                `json:"truncated"`
}

// deliveriesPath is where an owner's deliveries are.
func deliveriesPath(owner job.DeliveryOwner) string {
	if owner.WebhookID.IsZero() {
		return jobPath(owner.JobID) + "/deliveries"
	}
	return webhookPath(owner.WebhookID) + "/deliveries"
}

// deliveryViewOf shows a delivery that is listed at the given path.
func (s *Server) deliveryViewOf(path string, d *job.Delivery) deliveryView {
	self := s.links.At(path) + "/" + d.ID.String()
	v := deliveryView{
		DeliveryID: d.ID, WebhookID: idOrNull(d.WebhookID), URL: orNull(d.URL), JobID: idOrNull(d.JobID),
		EventID: d.EventID, EventName: d.EventName, State: d.State, Attempts: d.Attempts,
		NextAttemptAt: job.TimeOf(d.NextAttemptAt), CreatedAt: job.Time(d.CreatedAt), SettledAt: job.TimeOf(d.SettledAt),
		LastStatus: positiveOrNull(d.LastStatus), LastError: causeOf(d.LastError),
		Links: deliveryLinksView{Self: self, Redeliver: self + "/redeliver"},
	}
	if v.JobID != nil {
		v.Seq = &d.Seq
	}
	return v
}

func (s *Server) loggedDeliveryViewOf(path string, d *job.Delivery, attempts []job.DeliveryAttempt) loggedDeliveryView {
	v := loggedDeliveryView{s.deliveryViewOf(path, d), make([]tryView, len(attempts))}
	for i := range attempts {
		v.Log[i] = tryViewOf(&attempts[i])
	}
	return v
}

func tryViewOf(a *job.DeliveryAttempt) tryView {
	v := tryView{
		Number: a.Number, StartedAt: job.Time(a.StartedAt), DurationMS: a.Duration.Milliseconds(),
		Status: positiveOrNull(a.Status), Error: causeOf(a.Error),
	}
	if v.Status != nil {
		v.Response = receivedViewOf(a)
	}
	return v
}

func receivedViewOf(a *job.DeliveryAttempt) *receivedView {
	v := &receivedView{Headers: a.Header, Truncated: a.Truncated}
	if v.Headers == nil {
		v.Headers = map[string][]string{}
	}
	text := a.Body
	if a.Truncated {
		text = withoutCutCharacter(text)
	}
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		shown := string(text)
		v.Body = &shown
	} else {
		v.BodyBase64 = base64.StdEncoding.EncodeToString(a.Body)
	}
	return v
}

// withoutCutCharacter leaves out the beginning of a UTF-8 character at the end
// of text that was cut off there.
func withoutCutCharacter(text []byte) []byte {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}

func causeOf(e job.SendError) *causeView {
	if e == "" {
		return nil
	}
	return &causeView{string(e), e.Text()}
}

// positiveOrNull makes the zero that means none null.
func positiveOrNull(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

type replayView struct {
	Queued     int     `json:"queued"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

// causeView is a reason for programs and for people.
type causeView struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}
