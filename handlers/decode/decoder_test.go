package decode

import (
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

// TestPointersAreNotComputedInVain: beyond the limit nothing is done.
func TestPointersAreNotComputedInVain(t *testing.T) {
	name := strings.Repeat("n", 100)
	d := newDecoder([]byte(`{"` + name + `":1}`))
	d.token()
	d.value()
	require.Equal(t, "/"+name, d.pointer())
	d.form, d.values = make([]job.Violation, d.limit), make([]job.Violation, d.limit)
	require.Less(t, allocated(func() {
		for range 1000 {
			d.malformed(numberRefused)
			d.invalid(numberRefused)
		}
	}), uint64(1000*len(name)/2), "less than that of one pointer each")
	require.Len(t, d.form, job.MaxViolations)
	require.Len(t, d.values, job.MaxViolations)
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

// allocated gives the bytes that f allocates. Nothing else may run beside it.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
