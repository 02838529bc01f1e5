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
	"github.com/forgerun/forgerun/job/view"
)

// Deliveries are the use cases of deliveries to webhooks and callbacks.
type Deliveries interface {
	Test(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Deliveries(ctx context.Context, client job.ID, q job.DeliveryQuery) (job.DeliveryPage, error)
	Delivery(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, []job.DeliveryAttempt, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
	// RedeliverFailed sends again what failed since a time, and Replay also what
	// was not sent at all. Each does a part at a time; the answer to Replay says
	// after which position to go on.
	RedeliverFailed(ctx context.Context, client, id job.ID, since time.Time) (job.Replay, error)
	Replay(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error)
}

// owner is what the deliveries of a path belong to.
func (r *call) owner() job.DeliveryOwner {
	return job.DeliveryOwner{WebhookID: r.webhook, JobID: r.jobID}
}

// listDeliveries answers with a page of an owner's deliveries, newest first.
func (s *Server) listDeliveries(r *call) error {
	path := deliveriesPath(r.owner())
	show := func(d job.Delivery) deliveryView { return s.deliveryViewOf(path, &d) }
	return paged(r, path+"?"+r.filters(), show, func(after job.ID, limit int) ([]job.Delivery, job.ID, error) {
		page, err := s.deps.Deliveries.Deliveries(r.ctx, r.caller.ClientID, job.DeliveryQuery{
			Owner: r.owner(), State: job.DeliveryState(r.Query("state")), EventName: r.Query("event_name"),
			CreatedAfter: query.TimeOf(r.Query("created_after")), CreatedBefore: query.TimeOf(r.Query("created_before")),
			After: after, Limit: limit,
		})
		return page.Deliveries, page.Next, err
	})
}

// getDelivery answers with a delivery and all its attempts.
func (s *Server) getDelivery(r *call) error {
	d, attempts, err := s.deps.Deliveries.Delivery(r.ctx, r.caller.ClientID, r.owner(), r.idOf("delivery_id"))
	if err != nil {
		return err
	}
	v := loggedDeliveryView{s.deliveryViewOf(deliveriesPath(r.owner()), d), make([]tryView, len(attempts))}
	for i := range attempts {
		v.Log[i] = tryViewOf(&attempts[i])
	}
	return r.json(fiber.StatusOK, v)
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
		position, err := s.deps.CursorKey.Open(r.base, client, scope, *cursor, positionBytes)
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
		next, err := s.deps.CursorKey.Seal(r.base, client, scope, positionBytesOf(replay.Next))
		if err != nil {
			return err
		}
		answer.NextCursor = &next
	}
	return r.json(fiber.StatusAccepted, answer)
}

// deliveryView is a delivery: to a webhook, or to the callback of a job.
type deliveryView struct {
	view.Delivery
	Links deliveryLinksView `json:"links"`
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
	Number     int             `json:"number"`
	StartedAt  job.Time        `json:"started_at"`
	DurationMS int64           `json:"duration_ms"`
	Status     *int            `json:"status"`   // null without an answer
	Error      *view.SendCause `json:"error"`    // null if it was delivered
	Response   *receivedView   `json:"response"` // null without an answer
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
	v := deliveryView{Links: deliveryLinksView{Self: self, Redeliver: self + "/redeliver"}, Delivery: view.Delivery{
		DeliveryID: d.ID, WebhookID: view.OrNull(d.WebhookID), URL: view.OrNull(d.URL), JobID: view.OrNull(d.JobID),
		EventID: d.EventID, EventName: d.EventName, State: d.State, Attempts: d.Attempts,
		NextAttemptAt: job.TimeOf(d.NextAttemptAt), CreatedAt: job.Time(d.CreatedAt), SettledAt: job.TimeOf(d.SettledAt),
		LastStatus: view.OrNull(d.LastStatus), LastError: view.OrNull(view.SendCause{Code: d.LastError, Reason: d.LastReason}),
	}}
	if v.JobID != nil {
		v.Seq = &d.Seq
	}
	return v
}

func tryViewOf(a *job.DeliveryAttempt) tryView {
	v := tryView{
		Number: a.Number, StartedAt: job.Time(a.StartedAt), DurationMS: a.Duration.Milliseconds(),
		Status: view.OrNull(a.Status), Error: view.OrNull(view.SendCause{Code: a.Error, Reason: a.Reason}),
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

type replayView struct {
	Queued     int     `json:"queued"`
	NextCursor *string `json:"next_cursor"` // null at the end
}
