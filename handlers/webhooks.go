package handlers

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

func (s *Server) registerWebhook(r *call) error {
	body, err := r.body(false)
	if err != nil {
		return err
	}
	key, err := r.idempotencyKey()
	if err != nil {
		return err
	}
	req, err := decodeWebhook(body, key)
	if err != nil {
		return err
	}
	req.ClientID, req.RequestID = r.caller.ClientID, r.idText
	issued, err := s.deps.Webhooks.Register(r.ctx, req)
	if err != nil {
		return err
	}
	r.webhook = issued.ID
	r.Set(fiber.HeaderLocation, webhookPath(issued.ID))
	if issued.Replayed {
		r.Set("Idempotency-Replayed", "true")
	}
	return r.json(fiber.StatusCreated, issuedWebhookViewOf(&issued))
}

// listWebhooks answers with all webhooks of a client: there are few.
func (s *Server) listWebhooks(r *call) error {
	webhooks, err := s.deps.Webhooks.Webhooks(r.ctx, r.caller.ClientID)
	if err != nil {
		return err
	}
	list := listView[webhookView]{Data: make([]webhookView, len(webhooks)), Page: pageView{Limit: job.MaxWebhooks}}
	for i := range webhooks {
		list.Data[i] = webhookViewOf(&webhooks[i])
	}
	return r.json(fiber.StatusOK, list)
}

func (s *Server) getWebhook(r *call) error {
	w, err := s.deps.Webhooks.Webhook(r.ctx, r.caller.ClientID, r.pathWebhook())
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, webhookViewOf(w))
}

// mimeMergePatch is what a change of a webhook is (RFC 7396). Plain JSON means
// the same.
const mimeMergePatch = "application/merge-patch+json"

func (s *Server) updateWebhook(r *call) error {
	id := r.pathWebhook()
	body, err := r.bodyOf(false, fiber.MIMEApplicationJSON, mimeMergePatch)
	if err != nil {
		return err
	}
	patch, err := decodeWebhookPatch(body)
	if err != nil {
		return err
	}
	w, err := s.deps.Webhooks.Update(r.ctx, r.caller.ClientID, id, patch)
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, webhookViewOf(w))
}

func (s *Server) unregisterWebhook(r *call) error {
	id := r.pathWebhook()
	if err := r.emptyBody(); err != nil {
		return err
	}
	if err := s.deps.Webhooks.Unregister(r.ctx, r.caller.ClientID, id); err != nil {
		return err
	}
	return r.json(fiber.StatusOK, deletedView{Deleted: true})
}

func (s *Server) rotateSecret(r *call) error {
	id := r.pathWebhook()
	if err := r.emptyBody(); err != nil {
		return err
	}
	issued, err := s.deps.Webhooks.RotateSecret(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, issuedWebhookViewOf(&issued))
}

// testWebhook answers 202 with the delivery, whose path shows what becomes of it.
func (s *Server) testWebhook(r *call) error {
	id := r.pathWebhook()
	if err := r.emptyBody(); err != nil {
		return err
	}
	d, err := s.deps.Webhooks.Test(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	return r.acceptedDelivery(deliveriesPath(job.DeliveryOwner{WebhookID: id}), d)
}

// redeliverFailed needs no position: what it has sent again is FAILED no more.
func (s *Server) redeliverFailed(r *call) error {
	return s.sendAgain(r, "redeliver", func(ctx context.Context, client, id job.ID, since time.Time, _ job.Position) (job.Replay, error) {
		return s.deps.Webhooks.RedeliverFailed(ctx, client, id, since)
	})
}

func (s *Server) replayWebhook(r *call) error {
	return s.sendAgain(r, "replay", s.deps.Webhooks.Replay)
}

var errBadReplayCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor is not one of this replay.",
	Violations: []job.Violation{{Pointer: "/cursor",
		Detail: "This must be the next_cursor of the answer before, unchanged and with the same since; leave it out to start anew."}},
}

// sendAgain has a webhook sent again what it missed since a time, from the
// cursor on. The cursor belongs to the webhook, the action and the time.
func (s *Server) sendAgain(
	r *call, action string, send func(ctx context.Context, client, id job.ID, since time.Time, after job.Position) (job.Replay, error),
) error {
	client, id := r.caller.ClientID, r.pathWebhook()
	body, err := r.body(false)
	if err != nil {
		return err
	}
	since, cursor, err := decodeSince(body)
	if err != nil {
		return err
	}
	var after job.Position
	scope := webhookPath(id) + "/" + action + "?" + since.Format(time.RFC3339Nano)
	if cursor != nil {
		place, err := s.openCursor(r.ctx, client, scope, *cursor, positionBytes)
		if errors.Is(err, errBadCursor) {
			return errBadReplayCursor
		}
		if err != nil {
			return err
		}
		after = positionOf(place)
	}
	replay, err := send(r.ctx, client, id, since, after)
	if err != nil {
		return err
	}
	answer := replayView{Queued: replay.Queued}
	if replay.More {
		next, err := s.sealCursor(r.ctx, client, scope, placeOf(replay.Next))
		if err != nil {
			return err
		}
		answer.NextCursor = &next
	}
	return r.json(fiber.StatusAccepted, answer)
}

// mimeKeyDirectory is the media type of the directory of signing keys
// (draft-meunier-http-message-signatures-directory), a JSON Web Key Set.
const mimeKeyDirectory = "application/http-message-signatures-directory+json"

// signingKeys answers with the public keys that deliveries are signed with.
// A new key is published long before it signs, so answers may be kept a while.
func (s *Server) signingKeys(r *call) error {
	keys, err := s.deps.Directory(r.ctx)
	if err != nil {
		return err
	}
	r.Set(fiber.HeaderCacheControl, "public, max-age=300")
	r.Set(fiber.HeaderContentType, mimeKeyDirectory)
	return r.Send(keys)
}
