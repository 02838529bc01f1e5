package decode

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestCallbacks(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"http://example.com", "https://example.com:8443/a/b?c=d&e=%20", "HTTP://EXAMPLE.COM/", "http://[::1]:80/", "http://127.0.0.1:9",
		"https://example.com/" + strings.Repeat("x", 2028), "http://münchen.example/ä",
	} {
		require.Empty(t, checkURL(good), good)
	}
	for _, bad := range []string{
		"", "x", "/x", "//example.com", "ftp://example.com", "file:///etc/passwd", "javascript:alert(1)", "http:", "http://", "http:///x",
		"http:example.com",
		"http://:80", "http://?x", "http://u@example.com", "http://u:p@example.com", "http://@example.com", "http://example.com#",
		"http://example.com/#x",
		"http://example.com:0", "http://example.com:65536", "http://example.com:x", "http://example.com:", "http://example.com:-1",
		"http://example.com/a b", "http://example.com/\n", "http://example.com/\r\nX: 1", "http://exa\tmple.com", "http://example.com/\x7f",
		"http://example.com/\u0085",
		"http://example.com\\@evil.example", "http://[::1", "http://%zz", " http://example.com",
		"https://example.com/" + strings.Repeat("x", 2029),
	} {
		require.NotEmpty(t, checkURL(bad), bad)
	}
}

// TestPointersAreThoseOfTheParser compares them after every token.
func TestPointersAreThoseOfTheParser(t *testing.T) {
	t.Parallel()
	d := newDecoder([]byte(`{"a":[1,{"b~/":{},"":[[],[2]]},"x"],"\u0061b":{"c":{"d":null}},"` + strings.Repeat("n", maxPointerBytes-1) +
		`":1,"e":{"` +
		strings.Repeat("n", maxPointerBytes) + `":[1,2]}}`))
	for d.err == nil {
		d.node()
		require.Equal(t, shorten(d.json.StackPointer()), d.pointer())
	}
	require.ErrorIs(t, d.err, io.EOF)
}

// However much is wrong, only so much is told of it; the rest is counted.
func TestDecodeBoundsItsComplaints(t *testing.T) {
	t.Parallel()
	unknown := func(n int) string {
		var members strings.Builder
		for i := range n {
			fmt.Fprintf(&members, `,"%d":0`, i)
		}
		return execute(members.String()[1:])
	}
	r, err := Job([]byte(unknown(3000)), "", limits)
	require.NoError(t, err)
	require.Len(t, r.Violations, job.MaxViolations)
	require.Equal(t, 3000-job.MaxViolations, r.Unlisted)
	require.True(t, r.Malformed)
	require.Contains(t, r.Refusal(r.Violations).Detail, "And 2,900 more")

	b, err := Batch([]byte(`{"jobs":`+many(20, unknown(60))+`}`), "", limits)
	require.NoError(t, err)
	require.Len(t, b.Items[0].Request.Violations, 60)
	require.Len(t, b.Items[1].Request.Violations, job.MaxViolations-60)
	require.True(t, b.Items[1].Request.Malformed)
	require.Equal(t, 20*60-job.MaxViolations, b.Unlisted, "of all items together")

	w, err := Webhook([]byte(`{"url":"https://example.com","events":`+many(2_000, `"x"`)+`}`), "k")
	require.NoError(t, err)
	require.Len(t, w.Violations, job.MaxViolations)
	require.LessOrEqual(t, len(w.Events), 20)
}

// Names are compared with each other, and elements cost as much time: the number of both is bounded, in an object
// and in all. What says too many is not read to its end.
func TestDecodeBoundsMembers(t *testing.T) {
	t.Parallel()
	object := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `,"%d":0`, i)
		}
		return "{" + text.String()[1:] + "}"
	}
	for body, at := range map[string]string{
		execute(`"params":` + object(4001)): "/params/4000", param(many(13, object(4000))): "/params/a/12/1997",
		param(many(60_000, "1")): "/params/a/49999", `{"params":{"a":` + many(60_000, "[]") + `,"broken"`: "/params/a/49999",
		`{"params":{"a":` + many(30_000, "{}") + `,"b":` + many(21_000, "1e9"): "/params/b/19999",
		emit(`{"name":"a","data":` + many(2, many(30_000, "null")) + `}`):      "/event/data/1/19997",
		execute(`"unknown":` + many(60_000, "1")):                              "/unknown/49999",
	} {
		r, err := Job([]byte(body), "k", limits)
		all := strings.Fields(told(t, job.CodeMalformed, err, r.Malformed, r.Violations))
		require.Equal(t, at, all[len(all)-1], "%.100s", body)
	}
	for _, body := range []string{execute(`"params":` + object(4000)), param(many(12, object(4000))), param(many(50_000, "1"))} {
		_, err := Job([]byte(body), "k", limits)
		require.NoError(t, err)
	}
	_, err := Batch([]byte(`{"jobs":`+many(11, param(many(5_000, "1")))+`}`), "", limits)
	require.Equal(t, job.CodeMalformed, job.CodeOf(err), "the items of a batch have one bound together")
	whole := []byte(object(20_000))
	require.Equal(t, whole, Canonical(whole), "it is not put in order")
}

// TestFaultsCostLittle: neither many faults nor faults below long names make
// the decoder do more than the body's length justifies. It is not parallel,
// because it looks at what the process allocates.
func TestFaultsCostLittle(t *testing.T) {
	name, faults := strings.Repeat("n", 50_000), many(5_000, "1e999")
	var members strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&members, `"%d":"\u0000",`, i)
	}
	for _, body := range []string{
		execute(`"params":{"` + name + `":{` + members.String() + `"x":1}}`), execute(`"params":{"` + name + `":` + faults + `}`),
		execute(`"params":{"` + strings.Repeat(`\u0041/~`, 6_000) + `":` + faults + `}`), execute(`"` + name + `":` + faults),
		execute(members.String() + `"x":1`),
	} {
		limit := uint64(20*len(body) + 100_000)
		require.Less(t, allocated(func() { _, _ = Job([]byte(body), "", limits) }), limit, "%.50s", body)
		require.Less(t, allocated(func() { _, _ = Batch([]byte(`{"jobs":[`+body+`]}`), "", limits) }), limit, "%.50s", body)
	}
	body := `{"jobs":` + many(1000, execute(`"`+name[:400]+`":`+many(100, "1e999"))) + `}`
	require.Less(t, allocated(func() { _, _ = Batch([]byte(body), "", limits) }), uint64(20*len(body)), "many items with faults")
}

// allocated gives the bytes that f allocates. Nothing else may run beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
