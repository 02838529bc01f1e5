package handlers

import (
	"cmp"
	"log/slog"
	"strconv"
	"strings"

	"golang.org/x/text/language"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// matcher finds the best of job.Languages.
var matcher = func() language.Matcher {
	tags := make([]language.Tag, len(job.Languages))
	for i, l := range job.Languages {
		tags[i] = language.MustParse(l)
	}
	return language.NewMatcher(tags)
}()

// maxLanguageBytes bounds the work that a header can cause.
const maxLanguageBytes = 256

// chooseLanguage gives the supported language that the client likes best.
func chooseLanguage(acceptLanguage string) string {
	if acceptLanguage == "" || len(acceptLanguage) > maxLanguageBytes {
		return job.Languages[0]
	}
	tags, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		return job.Languages[0]
	}
	_, index, _ := matcher.Match(tags...)
	return job.Languages[index]
}

// maxCorrelationBytes is the draft's bound on correlation ids (section 9.2).
const maxCorrelationBytes = 256

func validCorrelation(id string) bool {
	return 0 < len(id) && len(id) <= maxCorrelationBytes && isWord(id)
}

// isWord reports whether s has only A-Z, a-z, 0-9, dot, hyphen and underscore.
func isWord(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// provenance is what the headers of a request say of where it comes from.
type provenance struct {
	language      string
	correlationID string // "" for none
	traceParent   string // of the span to go on from; "" for none
}

// provenance reads the headers. The trace-id of traceparent wins over
// X-Correlation-ID (draft section 3.9). Headers that are not of the right form
// are ignored.
func (s *Server) provenance(r *call) provenance {
	p := provenance{language: chooseLanguage(r.list("Accept-Language"))}
	if id := r.list("X-Correlation-ID"); validCorrelation(id) {
		p.correlationID = id
	} else if id != "" {
		s.logIgnored(r, "correlation id ignored", id)
	}
	if parent, traceID := r.traceparent(); parent != "" {
		p.traceParent, p.correlationID = parent, traceID
	} else if sent := r.list("traceparent"); sent != "" {
		s.logIgnored(r, "traceparent ignored", sent)
	}
	// What is traced goes on from this request, not from the client.
	p.traceParent = cmp.Or(telemetry.Traceparent(r.ctx), p.traceParent)
	return p
}

func (s *Server) logIgnored(r *call, message, value string) {
	s.log.LogAttrs(r.ctx, slog.LevelWarn, message,
		slog.String("request_id", r.idText), slog.String("client_id", idOrEmpty(r.caller.ClientID)),
		slog.String("action", r.route.action), slog.String("value", strconv.QuoteToASCII(clip(value))))
}

// complete adds to req what does not come from its body. The correlation id of
// the headers wins over that of the body.
func (p provenance) complete(req *job.Request) {
	req.Language, req.TraceParent = p.language, p.traceParent
	if p.correlationID != "" {
		req.CorrelationID = p.correlationID
	}
}

// traceIDOf gives the trace-id of a traceparent header (W3C Trace Context, level
// 1): version, trace-id, parent-id and flags in lower-case hex, neither id
// zero. Versions after 00 may be longer.
func traceIDOf(parent string) (string, bool) {
	const length = 55
	if len(parent) < length || len(parent) > 2*length || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return "", false
	}
	version, trace, span, flags := parent[:2], parent[3:35], parent[36:52], parent[53:55]
	switch {
	case !isLowerHex(version + trace + span + flags), version == "ff":
		return "", false
	case len(parent) > length && (version == "00" || parent[length] != '-'):
		return "", false
	case strings.Trim(trace, "0") == "", strings.Trim(span, "0") == "":
		return "", false
	}
	return trace, true
}

func isLowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
