package testbed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

// Body stores the data that the record needs. The body itself is freed before the record is written.
func (s *API) Body(r *httpkit.Request, body []byte) {
	v := visitOf(r)
	var named struct {
		Key         string `json:"idempotency_key"`
		Correlation string `json:"correlation_id"`
	}
	_ = json.Unmarshal(body, &named) // for invalid JSON, both fields stay empty
	v.bodyKey, v.bodyCorrelation = named.Key, named.Correlation
	if len(body) > 0 {
		same := jsontext.Value(body).Clone()
		_ = same.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
		v.bodySum = wire.Sum(same)
	}
}

// record stores the request in the client's session. Requests of unknown clients are not stored. The record is stored before the response
// is sent, so a client that has received the response can read the record. For a slow or stalled response, record returns a function that
// stores the record. The caller calls it just before the last byte, or after the client has hung up.
func (s *API) record(v *visit) (later func(hungUp bool)) {
	r := v.Request
	if r.Streams || !recorded(r) {
		return func(bool) {}
	}
	x := v.exchange()
	who := cmp.Or(r.Caller, r.Claimed)
	if x.KeyInURL && who.ClientID.IsZero() { // the Authorization header does not identify the client
		for _, value := range r.Context().QueryArgs().All() {
			if bytes.HasPrefix(value, []byte(httpkit.KeyPrefix)) { // look up only the first key, because a stranger may send many keys
				who, _ = s.TryKey(r.Base, r, string(value)) // an invalid key belongs to no client
				break
			}
		}
	}
	scope := s.recordIn(v, who.ClientID)
	if v.fault != nil && sentLater(v.fault) {
		return func(hungUp bool) {
			if x.HungUp = x.HungUp || hungUp; v.fault.Close == fault.CloseStall {
				x.End = time.Now().UTC()
			}
			s.keep(scope, x)
		}
	}
	s.keep(scope, x)
	return func(bool) {}
}

// recorded reports whether the test bed records requests of a route. Of the test bed's own routes, it records only the reset.
func recorded(r *httpkit.Request) bool {
	return r.Route.Access != httpkit.Public &&
		(!strings.HasPrefix(r.Route.Path, "/v1/testbed/") || r.Route.Path == resetPath)
}

// recordIn returns the session that records a request. For an invalid session header, this is the session without a label. recordIn returns
// zero if the session cannot be found.
func (s *API) recordIn(v *visit, client job.ID) testbed.Scope {
	if client.IsZero() {
		return testbed.Scope{}
	}
	ctx, cancel := s.Background()
	defer cancel()
	scope, err := s.session(ctx, v, client)
	if job.CodeOf(err) == job.CodeValidationFailed {
		return testbed.Scope{Client: client}
	}
	s.logUnrecorded(ctx, client, err)
	return scope
}

// keep stores a record, unless the scope is zero. A failure is logged and does not fail the request.
func (s *API) keep(scope testbed.Scope, x *verdict.Exchange) {
	if scope.Client.IsZero() {
		return
	}
	ctx, cancel := s.Background()
	defer cancel()
	s.logUnrecorded(ctx, scope.Client, s.Testbed.Record(ctx, scope, x))
}

func (s *API) logUnrecorded(ctx context.Context, client job.ID, err error) {
	if err != nil {
		s.Logger.WarnContext(ctx, "cannot record a request for its client's session", "action", "record_exchange",
			"client_id", client.String(), "error", err.Error())
	}
}

// kept returns a text for a record, without secrets and limited in length.
func kept(keep func(string) string, text string) string { return header.Clip(keep(text)) }

// exchange returns the record of the request and its response, without secrets.
func (v *visit) exchange() *verdict.Exchange {
	r := v.Request
	request, answer, operation := r.Request(), r.Response(), operationOf(r.Route)
	var retryAfter []string
	for _, line := range answer.Header.PeekAll(fiber.HeaderRetryAfter) {
		retryAfter = append(retryAfter, string(line))
	}
	x := &verdict.Exchange{
		Start: r.Start.UTC(), End: time.Now().UTC(), Method: r.Method(),
		Host: kept(redact.Keep, string(request.Header.Host())), Path: kept(redact.KeepURL, string(request.URI().Path())),
		Operation: operation, Role: testbed.RoleOf(operation), Body: v.bodySum,
		Correlation: kept(redact.Keep, cmp.Or(r.List("X-Correlation-ID"), v.bodyCorrelation)),
		Prefer:      kept(redact.Keep, r.List("Prefer")),
		Key:         wire.Sum([]byte(cmp.Or(r.List("Idempotency-Key"), v.bodyKey))),
		ContentType: kept(redact.Keep, r.Get(fiber.HeaderContentType)),
		Accept:      kept(redact.Keep, r.List(fiber.HeaderAccept)), IfNoneMatch: kept(redact.Keep, r.List(fiber.HeaderIfNoneMatch)),
		LastEventID: kept(redact.Keep, r.List("Last-Event-ID")), KeyID: cmp.Or(r.Caller, r.Claimed).KeyID,
		Closes: r.Request().ConnectionClose(), Agent: kept(redact.Keep, r.Get(fiber.HeaderUserAgent)),
		Connection: r.Context().ConnID(), Reused: r.Context().ConnRequestNum() > 1,
		Status: answer.StatusCode(), ETag: string(answer.Header.Peek(fiber.HeaderETag)),
		RetryAfter: wire.RetryAfter(retryAfter, time.Now()), Fault: v.fault, HungUp: v.hungUp,
	}
	if _, span := r.Traceparent(); span.IsValid() {
		x.Trace = span.TraceID().String()
	}
	query := string(request.URI().QueryString())
	if plain, err := url.QueryUnescape(query); strings.Contains(query, httpkit.KeyPrefix) ||
		err == nil && strings.Contains(plain, httpkit.KeyPrefix) ||
		bytes.Contains(request.URI().Path(), []byte(httpkit.KeyPrefix)) {
		x.KeyInURL = true
	} else {
		x.Query = kept(redact.KeepQuery, query)
	}
	if id := cmp.Or(r.Subject(httpkit.JobID), r.Subject(httpkit.BatchID), r.Subject(httpkit.BulkID)); !id.IsZero() {
		x.Job = id.String()
	}
	if r.Failed != nil {
		x.Code, x.Expired = string(r.Failed.Code), r.Failed.Code == job.CodeTokenExpired && v.fault == nil
	}
	if v.fault != nil && v.fault.Moved != 0 && x.Status == v.fault.Moved {
		x.Location = strings.TrimSuffix(v.elsewhere()+x.Path+"?"+x.Query, "?")
	}
	v.shown(x)
	return x
}
