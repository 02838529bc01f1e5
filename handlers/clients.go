package handlers

import (
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

func (s *Server) createClient(r *call) error {
	created, err := s.deps.Clients.CreateClient(r.ctx, r.caller)
	if err != nil {
		return err
	}
	r.client = created.ID
	return r.json(fiber.StatusCreated, clientView{created.ID})
}

// createKey answers 201 to repetitions too; api_key is null then.
func (s *Server) createKey(r *call) error {
	body, err := r.body(true)
	if err != nil {
		return err
	}
	rotate, scope, err := decode.CreateKey(body)
	if err != nil {
		return err
	}
	key, err := s.deps.Clients.CreateKey(r.ctx, r.caller, r.pathID(), rotate, scope)
	if err != nil {
		return err
	}
	r.client, r.keyID = key.ClientID, key.ID
	return r.issued(fiber.StatusCreated, key)
}

func (s *Server) renewKey(r *call) error {
	key, err := s.deps.Clients.RenewKey(r.ctx, r.caller, r.pathID())
	if err != nil {
		return err
	}
	r.client, r.keyID = key.ClientID, key.ID
	return r.issued(fiber.StatusOK, key)
}

// issued answers with a key. Its secret is in this answer alone.
func (r *call) issued(status int, key job.IssuedKey) error {
	hidden := key
	hidden.Secret = ""
	return r.secretJSON(status, keyViewOf(key), keyViewOf(hidden))
}

func (s *Server) revokeKey(r *call) error {
	body, err := r.body(false)
	if err != nil {
		return err
	}
	keyID, err := decode.RevokeKey(body)
	if err != nil {
		return err
	}
	id := r.pathID()
	if err := s.deps.Clients.RevokeKey(r.ctx, r.caller, id, keyID); err != nil {
		return err
	}
	r.client, r.keyID = id, keyID // only now: before, it was but the client's text
	return r.json(fiber.StatusOK, revokedView{Revoked: true})
}

// cancelClient stops a part of a client's jobs at a time, as many as a request can.
func (s *Server) cancelClient(r *call) error {
	id := r.pathID()
	canceled, more, err := s.deps.Jobs.CancelClient(r.ctx, id)
	if err != nil {
		return err
	}
	r.client = id
	return r.json(fiber.StatusOK, canceledView{canceled, more})
}

type canceledView struct {
	Canceled int  `json:"canceled"`
	More     bool `json:"more"`
}

type clientView struct {
	ClientID job.ID `json:"client_id"`
}

type keyView struct {
	APIKey    *string   `json:"api_key"` // null when the key existed already, and in a repetition
	KeyID     string    `json:"key_id"`
	Scope     job.Scope `json:"scope"`
	CreatedAt job.Time  `json:"created_at"`
	ExpiresAt job.Time  `json:"expires_at"`
}

func keyViewOf(k job.IssuedKey) keyView {
	return keyView{orNull(k.Secret), k.ID, k.Scope, job.Time(k.CreatedAt), job.Time(k.ExpiresAt)}
}

type revokedView struct {
	Revoked bool `json:"revoked"`
}
