package header

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/text/language"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// Key parses an Idempotency-Key header. The value is a structured-field string, as the draft of this header requires, or the bare key.
// Key refuses a request with several such headers. Without the header, it returns "".
func Key(lines ...string) (key string, err error) {
	if len(lines) == 0 {
		return "", nil
	}
	if key = lines[0]; strings.HasPrefix(key, `"`) {
		item, err := httpsfv.UnmarshalItem(lines[:1])
		if key, _ = item.Value.(string); err != nil || len(item.Params.Names()) > 0 {
			key = ""
		}
	}
	if len(lines) > 1 || !decode.ValidKey(key) {
		return "", job.Errorf(job.CodeMalformed, "The Idempotency-Key header must be one key: "+decode.KeyForm+
			` For example: Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324".`)
	}
	return key, nil
}

var matcher = func() language.Matcher {
	tags := make([]language.Tag, len(job.Languages))
	for i, l := range job.Languages {
		tags[i] = language.MustParse(l)
	}
	return language.NewMatcher(tags)
}()

// Language returns the supported language that an Accept-Language header prefers.
func Language(acceptLanguage string) string {
	const maxBytes = 256 // limits the work for a header
	if acceptLanguage == "" || len(acceptLanguage) > maxBytes {
		return job.Languages[0]
	}
	tags, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		return job.Languages[0]
	}
	_, index, _ := matcher.Match(tags...)
	return job.Languages[index]
}

// traceparentForm matches version, trace-id, parent-id, flags, and additions of later versions.
var traceparentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// Traceparent returns the span of a traceparent header (W3C Trace Context). The span is invalid if the header is malformed.
// OpenTelemetry's propagator is not used, because it refuses undefined flags. The standard says to ignore such flags.
func Traceparent(value string) trace.SpanContext {
	const maxBytes = 110
	if len(value) > maxBytes {
		return trace.SpanContext{}
	}
	match := traceparentForm.FindStringSubmatch(value)
	if match == nil || match[1] == "ff" || match[1] == "00" && match[5] != "" {
		return trace.SpanContext{}
	}
	traceID, _ := trace.TraceIDFromHex(match[2])
	spanID, _ := trace.SpanIDFromHex(match[3])
	flags, _ := strconv.ParseUint(match[4], 16, 8)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & (trace.FlagsSampled | trace.FlagsRandom), Remote: true,
	})
}

// Clip limits the length of client text for logs and records, and replaces bytes that Postgres cannot store.
func Clip(text string) string {
	const limit, instead = 500, "\uFFFD"
	more := ""
	if len(text) > limit {
		text, more = strings.ToValidUTF8(text[:limit], ""), "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, instead), "\x00", instead) + more
}
