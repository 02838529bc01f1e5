package decode

import (
	"strings"
	"testing"

	"github.com/forgerun/forgerun/job"
)

const smallJob = `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","correlation_id":"order-7","params":{"order":7}}`

func BenchmarkJob(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Job([]byte(smallJob), "key-1", limits)
	}
}

func BenchmarkBatch(b *testing.B) {
	body := []byte(`{"jobs":` + many(100, smallJob) + `}`)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Batch(body, "key-1", limits)
	}
}

// BenchmarkHostile reads bodies of 111 KB that are wrong everywhere.
func BenchmarkHostile(b *testing.B) {
	for name, behavior := range map[string]string{
		"values":  `{"failures":` + many(50, `{"attempts":`+many(990, "0")+`}`) + `}`,
		"types":   `{"failures":` + many(50, `{"attempts":`+many(700, `""`)+`}`) + `}`,
		"members": `{"emit":` + many(120, `{"a":1,"b":1,"`+strings.Repeat("x", 900)+`":1}`) + `}`,
		"missing": `{"emit":` + many(36_000, `{}`) + `}`,
	} {
		body := []byte(customBody(behavior))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := Job(body, "", testBed); err != nil || len(r.Violations) < job.MaxViolations {
					b.Fatal(err, len(r.Violations))
				}
			}
		})
	}
}
