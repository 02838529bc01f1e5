package header

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/dunglas/httpsfv"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/text/language"

	"github.com/forgerun/forgerun/job"
)

// Key reads an Idempotency-Key header: a structured-field string by its draft,
// or the bare key.
func Key(value string) (string, bool) {
	if !strings.HasPrefix(value, `"`) {
		return value, true
	}
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil || len(item.Params.Names()) > 0 {
		return "", false
	}
	key, ok := item.Value.(string)
	return key, ok
}

// matcher finds the best of job.Languages.
var matcher = func() language.Matcher {
	tags := make([]language.Tag, len(job.Languages))
	for i, l := range job.Languages {
		tags[i] = language.MustParse(l)
	}
	return language.NewMatcher(tags)
}()

// Language gives the supported language that an Accept-Language header prefers.
func Language(acceptLanguage string) string {
	const maxBytes = 256 // bounds the work that a header can cause
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

// traceparentForm is version, trace-id, parent-id and flags, and what later
// versions may add.
var traceparentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// Traceparent gives the span of a traceparent header (W3C Trace Context), one
// that is not valid for what is malformed. The propagator of OpenTelemetry would
// refuse flags that are not defined yet; here they are ignored, as the standard
// asks.
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

// Clip bounds text that a client may have influenced, for the log.
func Clip(text string) string {
	const limit = 500
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}
