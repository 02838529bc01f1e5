package httpkit

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/job"
)

const authorizationForm = "Send your API key in a single header: Authorization: Bearer frk_..."

// Every valid key or token is much shorter than maxTokenBytes.
const maxTokenBytes = 512

// Callers authenticates requests.
type Callers interface {
	// Admit sets r.Caller, or refuses the request. It is called for every route.
	Admit(r *Request) error
	// Refused is called after Admit has refused a request.
	Refused(r *Request, p *problem.Document)
	// Recheck returns an error if the caller has lost permissions since the request began.
	Recheck(r *Request) error
}

// keyHolders are the Callers of the client API: clients with keys, and operators with tokens.
type keyHolders struct{ *Kit }

func (s keyHolders) Admit(r *Request) error {
	if err := s.checkPage(r); err != nil || r.Route.Access == Public {
		return err
	}
	err := s.authenticate(r)
	s.startSpan(r)
	if err != nil {
		return err
	}
	if err := s.limitRegistrations(r); err != nil {
		return err
	}
	return s.limit(r)
}

// checkPage refuses a change that a page of another origin requests without a key. Browsers may send such a request without a CORS
// preflight. Before a request with a key, they always send a preflight.
func (s *Kit) checkPage(r *Request) error {
	origin := r.Get(fiber.HeaderOrigin)
	own := s.Origins.Allows(origin) || origin != "" && strings.HasPrefix(s.PublicURL+"/", origin+"/")
	safe := slices.Contains([]string{fiber.MethodGet, fiber.MethodHead, fiber.MethodOptions}, r.Method())
	if own || safe || len(r.Request().Header.Peek(fiber.HeaderAuthorization)) > 0 ||
		!localhosts.FromOtherPage(r.Method(), string(r.Request().Header.Host()), func(name string) string { return r.Get(name) }) {
		return nil
	}
	return job.Errorf(job.CodeForbidden, "A page of another origin sent this request without a key. Set FORGERUN_CORS_ORIGINS to allow it.")
}

func (s *Kit) authenticate(r *Request) error {
	caller, err := s.attempt(r)
	if caller.Expired && r.Route.takesExpired() {
		err = nil
	}
	switch {
	case err != nil:
	case r.Route.ofClient() && caller.ClientID.IsZero():
		err = job.Errorf(job.CodeForbidden, "Jobs belong to clients, and the operator's token belongs to no client. Use a client's key.")
	case caller.KeyID != "" && !caller.Scope.Allows(r.Route.needs()):
		err = job.Errorf(job.CodeForbidden, "This API key has the scope %s, but this request needs %s. Use a key with that scope.",
			caller.Scope, r.Route.needs())
	case r.Route.Access == OperatorToken && !caller.Admin:
		err = job.Errorf(job.CodeForbidden, "Only the operator can do this. Use the operator's token.")
	}
	if err != nil {
		r.Claimed = caller
		return err
	}
	r.Caller = caller
	return nil
}

// attempt authenticates the request, unless too many earlier attempts from the same address or with the same key have failed. Attempts
// with revoked and expired keys do not count as failures.
func (s *Kit) attempt(r *Request) (job.Caller, error) {
	headers := r.Request().Header.PeekAll(fiber.HeaderAuthorization)
	if len(headers) == 0 && r.Route.Access == Registration {
		return s.Keys.Authenticate(r.Ctx, "") // succeeds if registration is open
	}
	bearer, err := bearerOf(headers)
	if err != nil {
		return job.Caller{}, err
	}
	return s.TryKey(r.Ctx, r, bearer)
}

// TryKey authenticates a key or token.
func (s *Kit) TryKey(ctx context.Context, r *Request, bearer string) (job.Caller, error) {
	source := conn.Source(s.addrOf(r))
	if wait := s.Attempts.Check(source, bearer); wait > 0 {
		r.refused = slowed
		err := job.Errorf(job.CodeRateLimited, "Too many authentication attempts from this address or with this API key failed. "+
			"Correct the key, and wait for Retry-After; this request was not processed.")
		err.RetryAfter = wait
		return job.Caller{}, err
	}
	caller, err := s.Keys.Authenticate(ctx, bearer)
	switch {
	case err == nil:
		s.Attempts.Succeeded(bearer)
	case job.CodeOf(err) == job.CodeInvalidCredentials:
		s.Attempts.Failed(source, bearer)
	}
	return caller, err
}

// limitRegistrations also counts retries with the same idempotency key.
func (s *Kit) limitRegistrations(r *Request) error {
	if r.Route.Action != "create_client" || r.Caller.Admin {
		return nil
	}
	wait := s.Registrations.Take(conn.Source(s.addrOf(r)))
	if wait == 0 {
		return nil
	}
	err := job.Errorf(job.CodeRateLimited, "An address can register %d clients per minute. Wait for Retry-After, or use the "+
		"operator's token.", s.Registrations.PerMinute())
	err.RetryAfter = wait
	return err
}

func (s keyHolders) Recheck(r *Request) error {
	if r.Caller.KeyID == "" {
		return nil
	}
	caller, err := s.identify(r.Ctx, r.Request().Header.PeekAll(fiber.HeaderAuthorization))
	if err != nil && !(caller.Expired && r.Caller.Expired) {
		return err
	}
	return nil
}

// identify authenticates a request again, without counting failures.
func (s *Kit) identify(ctx context.Context, headers [][]byte) (job.Caller, error) {
	bearer, err := bearerOf(headers)
	if err != nil {
		return job.Caller{}, err
	}
	return s.Keys.Authenticate(ctx, bearer)
}

func bearerOf(headers [][]byte) (string, error) {
	if len(headers) == 0 {
		return "", job.Errorf(job.CodeInvalidCredentials, "The request has no Authorization header. "+authorizationForm)
	}
	scheme, token, _ := strings.Cut(string(headers[0]), " ")
	token = strings.TrimLeft(token, " ")
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxTokenBytes {
		return "", job.Errorf(job.CodeInvalidCredentials, "The Authorization header does not have the right form. "+authorizationForm)
	}
	return token, nil
}

func (s *Kit) addrOf(r *Request) netip.Addr {
	remote := conn.AddrOf(r.Context().RemoteAddr())
	if len(s.TrustedProxies) == 0 {
		return remote
	}
	return s.TrustedProxies.Client(remote, r.List(fiber.HeaderXForwardedFor))
}

var authCodes = []job.Code{job.CodeInvalidCredentials, job.CodeTokenExpired, job.CodeForbidden, job.CodeKeyDisabled}

// Refused counts and logs a failed authentication or authorization. The number of log lines is limited, and each line says how many
// lines were omitted before it. If a line is omitted, the access log omits the request too.
func (s keyHolders) Refused(r *Request, p *problem.Document) {
	if r.refused != slowed { // auth_attempts_refused_total counts slowed requests
		s.metrics.authFailures.WithLabelValues(string(p.Code)).Inc()
	}
	omitted, due := s.Attempts.Line(string(p.Code))
	if !due {
		r.refused = unlogged
		return
	}
	who := cmp.Or(r.Claimed, r.Caller, s.named(r))
	s.Logger.LogAttrs(r.Ctx, slog.LevelWarn, "authentication failed", slog.String("request_id", r.ID),
		slog.String("client_id", idOrEmpty(who.ClientID)), slog.String("key_id", who.KeyID), slog.String("action", r.Route.Action),
		slog.String("error_code", string(p.Code)), slog.String("reason", header.Clip(p.Detail)),
		slog.String("remote_address", s.addrOf(r).String()), slog.Any("omitted", omitted))
}

// named finds the client of a refused request by the API key, or by the id in the path. It does not verify the key.
func (s *Kit) named(r *Request) (who job.Caller) {
	presented := string(r.Request().Header.Peek(fiber.HeaderAuthorization))
	if at := strings.Index(presented, KeyPrefix); at >= 0 && s.Named != nil {
		ctx, cancel := s.Background() // the context of the request has ended
		defer cancel()
		who = s.Named(ctx, presented[at:])
	}
	if who.ClientID.IsZero() && strings.HasPrefix(r.Route.Path, "/v1/clients/") {
		who.ClientID, _ = job.ParseID(r.Params("id")) // zero for an invalid id
	}
	return who
}

// StillValid checks the key of a long-running request again, and returns the reason if the key is no longer valid. If Postgres fails, the
// key counts as valid.
func (s *Kit) StillValid(ctx context.Context, authorization [][]byte, client job.ID) error {
	caller, err := s.identify(ctx, authorization)
	switch {
	case err != nil && job.CodeOf(err).Spec().Status < 500:
		return err
	case err == nil && caller.ClientID != client:
		return job.Errorf(job.CodeInvalidCredentials, "The key belongs to another client now.")
	}
	return nil
}

// KeyPrefix starts every API key.
const KeyPrefix = "frk_"
