package handlers

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Clients are the use cases of clients and their keys. Except for
// Authenticate they decide themselves what the caller may do.
type Clients interface {
	Authenticate(ctx context.Context, bearer string) (job.Caller, error) // "": without credentials, where they are optional
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error)
	RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
	WatchKey(id string, changed func()) (stop func())
}

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
	k, err := decoded(r, true, decode.CreateKey)
	if err != nil {
		return err
	}
	return r.issued(fiber.StatusCreated)(s.deps.Clients.CreateKey(r.ctx, r.caller, r.pathID(), k.Rotate, k.Scope))
}

func (s *Server) renewKey(r *call) error {
	return r.issued(fiber.StatusOK)(s.deps.Clients.RenewKey(r.ctx, r.caller, r.pathID()))
}

// issued answers with a key. Its secret is in this answer alone.
func (r *call) issued(status int) func(job.IssuedKey, error) error {
	return func(key job.IssuedKey, err error) error {
		if err != nil {
			return err
		}
		r.client, r.keyID = key.ClientID, key.ID
		hidden := key
		hidden.Secret = ""
		return r.secretJSON(status, keyViewOf(key), keyViewOf(hidden))
	}
}

func (s *Server) revokeKey(r *call) error {
	keyID, err := decoded(r, false, decode.RevokeKey)
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
	return keyView{view.OrNull(k.Secret), k.ID, k.Scope, job.Time(k.CreatedAt), job.Time(k.ExpiresAt)}
}

type revokedView struct {
	Revoked bool `json:"revoked"`
}

// authorizationForm says how a request shows whose it is.
const authorizationForm = "Send your API key once, as Authorization: Bearer frk_..."

// maxTokenBytes is far above the length of any key or token.
const maxTokenBytes = 512

// authenticate finds out who asks, and refuses who may not use the route.
func (s *Server) authenticate(r *call) error {
	caller, err := s.attempt(r)
	if caller.Expired && r.route.takesExpired() {
		err = nil
	}
	switch {
	case err != nil:
	case r.route.access == client && caller.ClientID.IsZero():
		err = job.Errorf(job.CodeForbidden, "Jobs belong to clients; the operator's token has none. Use a client's key.")
	case caller.KeyID != "" && !caller.Scope.Allows(r.route.needs()):
		err = job.Errorf(job.CodeForbidden, "This API key has the scope %s, and this request needs %s. Use a key that has it.",
			caller.Scope, r.route.needs())
	case r.route.access == operator && !caller.Admin:
		err = job.Errorf(job.CodeForbidden, "Only the operator may do this. Use the operator's token.")
	}
	if err != nil {
		r.claimed = caller
		return err
	}
	r.caller = caller
	return nil
}

// attempt authenticates the request unless too many attempts of its address or
// its key have failed. It counts what is wrong; a key that was revoked or has
// expired is known, and mostly answered from memory.
func (s *Server) attempt(r *call) (job.Caller, error) {
	headers := r.Request().Header.PeekAll(fiber.HeaderAuthorization)
	if len(headers) == 0 && r.route.access == registration {
		return s.deps.Clients.Authenticate(r.ctx, "") // passes where registration is open
	}
	bearer, err := bearerOf(headers)
	if err != nil {
		return job.Caller{}, err
	}
	return s.tryKey(r.ctx, r, bearer)
}

// tryKey says whose a key or token is.
func (s *Server) tryKey(ctx context.Context, r *call, bearer string) (job.Caller, error) {
	source := conn.Source(s.addrOf(r))
	if wait := s.deps.Attempts.Check(source, bearer); wait > 0 {
		r.slowed = true
		err := job.Errorf(job.CodeRateLimited, "Too many attempts to authenticate failed, from this address or with this API key. "+
			"Correct the key, and wait as Retry-After says; this one was not looked at.")
		err.RetryAfter = wait
		return job.Caller{}, err
	}
	caller, err := s.deps.Clients.Authenticate(ctx, bearer)
	switch {
	case err == nil:
		s.deps.Attempts.Succeeded(bearer)
	case job.CodeOf(err) == job.CodeInvalidCredentials:
		s.deps.Attempts.Failed(source, bearer)
	}
	return caller, err
}

// limitRegistrations counts a request for a new client that is not the operator's,
// by the address that it comes from. A repetition counts too.
func (s *Server) limitRegistrations(r *call) error {
	if r.route.action != "create_client" || r.caller.Admin {
		return nil
	}
	wait := s.deps.Registrations.Take(conn.Source(s.addrOf(r)))
	if wait == 0 {
		return nil
	}
	err := job.Errorf(job.CodeRateLimited, "An address may register %d clients per minute. Wait as Retry-After says, "+
		"or use the operator's token.", s.deps.Registrations.PerMinute())
	err.RetryAfter = wait
	return err
}

// authenticateAgain refuses a request whose key has ended, or may do less, since the request began.
func (s *Server) authenticateAgain(r *call) error {
	if r.caller.KeyID == "" {
		return nil
	}
	caller, err := s.identify(r.ctx, r.Request().Header.PeekAll(fiber.HeaderAuthorization))
	if err != nil && !(caller.Expired && r.caller.Expired) {
		return err
	}
	return nil
}

// identify says whose the credentials of a request are that was let in before.
func (s *Server) identify(ctx context.Context, headers [][]byte) (job.Caller, error) {
	bearer, err := bearerOf(headers)
	if err != nil {
		return job.Caller{}, err
	}
	return s.deps.Clients.Authenticate(ctx, bearer)
}

// bearerOf gives what the lines of an Authorization header present.
func bearerOf(headers [][]byte) (string, error) {
	if len(headers) == 0 {
		return "", job.Errorf(job.CodeInvalidCredentials, "The request has no Authorization header. "+authorizationForm)
	}
	scheme, token, _ := strings.Cut(string(headers[0]), " ")
	token = strings.TrimLeft(token, " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxTokenBytes {
		return "", job.Errorf(job.CodeInvalidCredentials, "The Authorization header is not of the right form. "+authorizationForm)
	}
	return token, nil
}

// addrOf is the address that a request comes from.
func (s *Server) addrOf(r *call) netip.Addr {
	remote := conn.AddrOf(r.Context().RemoteAddr())
	if len(s.cfg.TrustedProxies) == 0 {
		return remote
	}
	return s.cfg.TrustedProxies.Client(remote, r.list(fiber.HeaderXForwardedFor))
}

// authCodes are those of failed authentication and authorisation.
var authCodes = []job.Code{job.CodeInvalidCredentials, job.CodeTokenExpired, job.CodeForbidden, job.CodeKeyDisabled}

// logRefusal counts and logs a failed authentication or authorisation. Of many
// it logs a few, which tell how many were left out; of those the access log
// tells nothing either.
func (s *Server) logRefusal(r *call, p *problem.Document) {
	if !r.slowed { // those are counted where it is decided
		s.metrics.authFailures.WithLabelValues(string(p.Code)).Inc()
	}
	omitted, due := s.deps.Attempts.Line(string(p.Code))
	if !due {
		r.unlogged = true
		return
	}
	who := cmp.Or(r.claimed, r.caller, s.named(r))
	s.log.LogAttrs(r.ctx, slog.LevelWarn, "authentication failed", slog.String("request_id", r.idText),
		slog.String("client_id", idOrEmpty(who.ClientID)), slog.String("key_id", who.KeyID), slog.String("action", r.route.action),
		slog.String("error_code", string(p.Code)), slog.String("reason", header.Clip(p.Detail)),
		slog.String("remote_address", s.addrOf(r).String()), slog.Any("omitted", omitted))
}

// named returns the client that a refused request names, by its key or else by its path. Nothing proves that it is the client.
func (s *Server) named(r *call) (who job.Caller) {
	presented := string(r.Request().Header.Peek(fiber.HeaderAuthorization))
	if at := strings.Index(presented, keyPrefix); at >= 0 && s.deps.Named != nil {
		who = s.deps.Named(r.ctx, presented[at:])
	}
	if who.ClientID.IsZero() && strings.HasPrefix(r.route.path, "/v1/clients/") {
		who.ClientID, _ = job.ParseID(r.Params("id")) // zero for what is none
	}
	return who
}
