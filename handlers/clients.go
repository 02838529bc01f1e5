package handlers

import (
	"fmt"

	"github.com/gofiber/fiber/v2"
)

func (s *Server) createClient(r *call) error {
	if err := r.emptyBody(); err != nil {
		return err
	}
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
	rotate, err := decodeCreateKey(body)
	if err != nil {
		return err
	}
	key, err := s.deps.Clients.CreateKey(r.ctx, r.caller, r.pathID(), rotate)
	if err != nil {
		return err
	}
	r.client, r.keyID = key.ClientID, key.ID
	return r.json(fiber.StatusCreated, keyViewOf(key))
}

func (s *Server) renewKey(r *call) error {
	if err := r.emptyBody(); err != nil {
		return err
	}
	key, err := s.deps.Clients.RenewKey(r.ctx, r.caller, r.pathID())
	if err != nil {
		return err
	}
	r.client, r.keyID = key.ClientID, key.ID
	return r.json(fiber.StatusOK, keyViewOf(key))
}

func (s *Server) revokeKey(r *call) error {
	body, err := r.body(false)
	if err != nil {
		return err
	}
	keyID, err := decodeRevokeKey(body)
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

// emptyBody refuses a body that says anything: none, or {}.
func (r *call) emptyBody() error {
	body, err := r.body(true)
	if err != nil || body == nil {
		return err
	}
	d := newDecoder(body)
	d.document(nil)
	return d.result()
}

func decodeCreateKey(body []byte) (rotate bool, err error) {
	if body == nil {
		return false, nil
	}
	d := newDecoder(body)
	d.document([]member{{name: "rotate", read: func() { rotate = d.boolean() }}})
	return rotate, d.result()
}

// maxKeyIDBytes is far above the length of any key id.
const maxKeyIDBytes = 128

func decodeRevokeKey(body []byte) (keyID string, err error) {
	d := newDecoder(body)
	present := false
	d.document([]member{{name: "key_id", read: func() {
		if keyID, present = d.text(); present && (keyID == "" || len(keyID) > maxKeyIDBytes) {
			d.invalid(fmt.Sprintf("This must be the key_id of an API key: 1 to %d bytes.", maxKeyIDBytes))
		}
	}}})
	d.require(present, "key_id")
	return keyID, d.result()
}
