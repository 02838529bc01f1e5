package handlers

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

// ofWebhook and ofJob say whose deliveries a path means.

func ofWebhook(r *call) job.DeliveryOwner { return job.DeliveryOwner{WebhookID: r.pathWebhook()} }

func ofJob(r *call) job.DeliveryOwner { return job.DeliveryOwner{JobID: r.pathJob()} }

// listDeliveries answers with a page of an owner's deliveries, newest first.
func (s *Server) listDeliveries(ownerOf func(*call) job.DeliveryOwner) func(*call) error {
	return func(r *call) error {
		q := job.DeliveryQuery{
			Owner: ownerOf(r), State: job.DeliveryState(r.Query("state")), EventName: r.Query("event_name"),
			CreatedAfter: r.queryTime("created_after"), CreatedBefore: r.queryTime("created_before"),
			Limit: r.queryLimit(defaultLimit),
		}
		client, path := r.caller.ClientID, deliveriesPath(q.Owner)
		scope := path + "?" + r.filters()
		if cursor := r.Query("cursor"); cursor != "" {
			place, err := s.openCursor(r.ctx, client, scope, cursor, len(q.After))
			if err != nil {
				return err
			}
			q.After = job.ID(place)
		}
		page, err := s.deps.Webhooks.Deliveries(r.ctx, client, q)
		if err != nil {
			return err
		}
		list := listView[deliveryView]{Data: make([]deliveryView, len(page.Deliveries)), Page: pageView{Limit: q.Limit}}
		for i := range page.Deliveries {
			list.Data[i] = deliveryViewOf(path, &page.Deliveries[i])
		}
		if !page.Next.IsZero() {
			next, err := s.sealCursor(r.ctx, client, scope, page.Next[:])
			if err != nil {
				return err
			}
			list.Page.NextCursor = &next
		}
		return r.json(fiber.StatusOK, list)
	}
}

// getDelivery answers with a delivery and all its attempts.
func (s *Server) getDelivery(ownerOf func(*call) job.DeliveryOwner) func(*call) error {
	return func(r *call) error {
		owner := ownerOf(r)
		d, attempts, err := s.deps.Webhooks.Delivery(r.ctx, r.caller.ClientID, owner, r.idOf("delivery_id"))
		if err != nil {
			return err
		}
		return r.json(fiber.StatusOK, loggedDeliveryViewOf(deliveriesPath(owner), d, attempts))
	}
}

func (s *Server) redeliver(ownerOf func(*call) job.DeliveryOwner) func(*call) error {
	return func(r *call) error {
		owner := ownerOf(r)
		if err := r.emptyBody(); err != nil {
			return err
		}
		d, err := s.deps.Webhooks.Redeliver(r.ctx, r.caller.ClientID, owner, r.idOf("delivery_id"))
		if err != nil {
			return err
		}
		return r.acceptedDelivery(deliveriesPath(owner), d)
	}
}

// acceptedDelivery answers 202 with a delivery that is on its way.
func (r *call) acceptedDelivery(path string, d *job.Delivery) error {
	v := deliveryViewOf(path, d)
	r.acceptedAt(v.Links.Self, false)
	return r.json(fiber.StatusAccepted, v)
}
