package decode

import "testing"

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
