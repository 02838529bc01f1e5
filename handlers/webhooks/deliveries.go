package webhooks

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

func ownerOf(r *httpkit.Request) job.DeliveryOwner {
	if strings.HasPrefix(r.Route.Path, "/v1/webhooks/") {
		return job.DeliveryOwner{WebhookID: r.PathID()}
	}
	return job.DeliveryOwner{JobID: r.PathID()}
}

func (s *API) listDeliveries(r *httpkit.Request) error {
	path := deliveriesPath(ownerOf(r))
	show := func(d job.Delivery) api.Delivery { return s.deliveryOf(path, &d) }
	return httpkit.Paged(r, path+"?"+r.Filters(), show, func(after job.ID, limit int) ([]job.Delivery, job.ID, error) {
		page, err := s.Webhooks.Deliveries(r.Ctx, r.Caller.ClientID, job.DeliveryQuery{
			Owner: ownerOf(r), State: job.DeliveryState(r.Query("state")), EventName: r.Query("event_name"),
			CreatedAfter: query.TimeOf(r.Query("created_after")), CreatedBefore: query.TimeOf(r.Query("created_before")),
			After: after, Limit: limit,
		})
		return page.Deliveries, page.Next, err
	})
}

func (s *API) getDelivery(r *httpkit.Request) error {
	d, attempts, err := s.Webhooks.Delivery(r.Ctx, r.Caller.ClientID, ownerOf(r), r.IDOf("delivery_id"))
	if err != nil {
		return err
	}
	v := api.LoggedDelivery{DeliveryMembers: s.deliveryOf(deliveriesPath(ownerOf(r)), d), AttemptsLog: []api.DeliveryAttempt{}}
	for i := range attempts {
		v.AttemptsLog = append(v.AttemptsLog, attemptOf(&attempts[i]))
	}
	return r.JSON(fiber.StatusOK, v)
}

func (s *API) redeliver(r *httpkit.Request) error {
	return s.accepted(r)(s.Webhooks.Redeliver(r.Ctx, r.Caller.ClientID, ownerOf(r), r.IDOf("delivery_id")))
}

func (s *API) accepted(r *httpkit.Request) func(*job.Delivery, error) error {
	return func(d *job.Delivery, err error) error {
		if err != nil {
			return err
		}
		path := deliveriesPath(ownerOf(r))
		r.AcceptedAt(path+"/"+d.ID.String(), false)
		return r.JSON(fiber.StatusAccepted, s.deliveryOf(path, d))
	}
}

// redeliverFailed ignores the position in the cursor. A delivery that is sent again is no longer FAILED, so the next request does not find
// it.
func (s *API) redeliverFailed(r *httpkit.Request) error {
	return s.resend(r, "redeliver", func(ctx context.Context, client, id job.ID, since time.Time, _ job.Position) (job.Replay, error) {
		return s.Webhooks.RedeliverFailed(ctx, client, id, since)
	})
}

func (s *API) replayWebhook(r *httpkit.Request) error {
	return s.resend(r, "replay", s.Webhooks.Replay)
}

var errBadReplayCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor does not belong to this replay.",
	Violations: []job.Violation{{Pointer: "/cursor",
		Detail: "This must be the next_cursor of the previous response, unchanged and with the same since; omit it to start again."}},
}

// resend sends the events since a time to a webhook again. With a cursor, it continues after the previous request. A cursor is valid only
// for the same webhook, action and time.
func (s *API) resend(
	r *httpkit.Request, action string,
	send func(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error),
) error {
	client, id := r.Caller.ClientID, r.PathID()
	asked, err := httpkit.Decoded(r, false, decode.Since)
	if err != nil {
		return err
	}
	var after job.Position
	scope := webhookPath(id) + "/" + action + "?" + asked.Since.Format(time.RFC3339Nano)
	if asked.Cursor != nil {
		position, err := s.CursorKey.Open(r.Base, client, scope, *asked.Cursor, query.PositionBytes)
		if errors.Is(err, query.ErrBadCursor) {
			return errBadReplayCursor
		}
		if err != nil {
			return err
		}
		after = query.PositionOf(position)
	}
	replay, err := send(r.Ctx, client, id, asked.Since, after)
	if err != nil {
		return err
	}
	answer := api.Replay{Queued: replay.Queued}
	if replay.More {
		next, err := s.CursorKey.Seal(r.Base, client, scope, query.Bytes(replay.Next))
		if err != nil {
			return err
		}
		answer.NextCursor = &next
	}
	return r.JSON(fiber.StatusAccepted, answer)
}

var deliveryQuery = slices.Concat(query.Page, []query.Parameter{
	query.Choice("state", job.DeliveryStates), query.Choice("event_name", job.SubscribableEvents),
}, query.Created)

func deliveriesPath(owner job.DeliveryOwner) string {
	if owner.WebhookID.IsZero() {
		return views.JobPath(owner.JobID) + "/deliveries"
	}
	return webhookPath(owner.WebhookID) + "/deliveries"
}

func (s *API) deliveryOf(path string, d *job.Delivery) api.Delivery {
	self := s.Links.At(path) + "/" + d.ID.String()
	v := api.Delivery{
		DeliveryID: d.ID, WebhookID: view.OrNull(d.WebhookID), URL: view.OrNull(d.URL), JobID: view.OrNull(d.JobID),
		EventID: d.EventID, EventName: d.EventName, State: d.State, Attempts: d.Attempts,
		NextAttemptAt: job.TimeOf(d.NextAttemptAt), CreatedAt: job.Time(d.CreatedAt), SettledAt: job.TimeOf(d.SettledAt),
		LastStatus: view.OrNull(d.LastStatus), LastError: view.OrNull(view.SendCause{Code: d.LastError, Reason: d.LastReason}),
		Links: api.DeliveryLinks{Self: self, Redeliver: self + "/redeliver"},
	}
	if v.JobID != nil {
		v.Seq = &d.Seq
	}
	return v
}

func attemptOf(a *job.DeliveryAttempt) api.DeliveryAttempt {
	v := api.DeliveryAttempt{
		Number: a.Number, StartedAt: job.Time(a.StartedAt), DurationMS: int(a.Duration.Milliseconds()),
		Status: view.OrNull(a.Status), Error: view.OrNull(view.SendCause{Code: a.Error, Reason: a.Reason}),
	}
	if v.Status != nil {
		v.Response = responseOf(a)
	}
	return v
}

func responseOf(a *job.DeliveryAttempt) *api.ReceiverResponse {
	v := &api.ReceiverResponse{Headers: a.Header, Truncated: a.Truncated}
	if v.Headers == nil {
		v.Headers = map[string][]string{}
	}
	text := a.Body
	if a.Truncated {
		text = withoutCutCharacter(text)
	}
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 {
		v.Body = new(string(text))
	} else {
		v.BodyBase64 = a.Body
	}
	return v
}

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
