package proxy_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

func multipartOf(boundary string, parts ...string) string {
	return "--" + boundary + "\r\n" + strings.Join(parts, "\r\n--"+boundary+"\r\n") + "\r\n--" + boundary + "--\r\n"
}

func gzipped(t *testing.T, at int64, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.ModTime = time.Unix(at, 0)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// A client is not blamed for bodies that cannot be compared.
func TestBodiesAreCompared(t *testing.T) {
	t.Parallel()
	name, file := "Content-Disposition: form-data; name=\"a\"\r\n\r\n1", "Content-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n"+
		"Content-Type: text/csv\r\n\r\na,b"
	large := strings.Repeat("0123456789", 200_000)
	in := func(boundary string) string { return "multipart/form-data; boundary=" + boundary }
	nested := func(boundary string) string {
		return "Content-Type: multipart/mixed; boundary=" + boundary + "\r\n\r\n" + multipartOf(boundary, name, file)
	}
	for _, c := range []struct {
		name          string
		first, second string
		types         [2]string
		encoding      string
		want          verdict.Status
	}{
		{"parts", multipartOf("x", name, file), multipartOf("yy", name, file), [2]string{in("x"), in("yy")}, "", verdict.OK},
		{"parts in another order", multipartOf("x", name, file), multipartOf("y", file, name), [2]string{in("x"), in("y")}, "", verdict.OK},
		{"another part", multipartOf("x", name, file), multipartOf("y", name, file+"c"), [2]string{in("x"), in("y")}, "", verdict.Fail},
		{"large parts", multipartOf("x", name, file+large), multipartOf("y", name, file+large), [2]string{in("x"), in("y")}, "", verdict.OK},
		{"parts within parts", multipartOf("x", nested("in")), multipartOf("y", nested("other")), [2]string{in("x"), in("y")}, "", verdict.OK},
		{"parts that name each other", multipartOf("x", "Content-Id: <1>\r\n\r\na"), multipartOf("y", "Content-Id: <2>\r\n\r\na"),
			[2]string{in("x"), in("y")}, "", verdict.NotTested},
		{"damaged parts", "--x\r\n" + name, "--y\r\n" + name, [2]string{in("x"), in("y")}, "", verdict.NotTested},
		{"a form", "a=1&b=x+y&a=2", "b=x%20y&a=1&a=%32", [2]string{"application/x-www-form-urlencoded", "application/x-www-form-urlencoded"},
			"", verdict.OK},
		{"another form", "a=1&b=2", "a=2&b=1", [2]string{"application/x-www-form-urlencoded", "application/x-www-form-urlencoded"}, "",
			verdict.Fail},
		{"JSON", `{"a":1,"b":2}`, `{"b": 2, "a": 1}`, [2]string{"application/json", "application/json"}, "", verdict.OK},
		{"large JSON", `{"a":1,"b":"` + large + `"}`, `{"b":"` + large + `","a":1}`, [2]string{"application/json", "application/json"}, "",
			verdict.NotTested},
		{"a large file", large, large, [2]string{"image/png", "image/png"}, "", verdict.OK},
		{"gzip", gzipped(t, 1, `{"a":1}`), gzipped(t, 2, `{"a":1}`), [2]string{"application/json", "application/json"}, "gzip", verdict.OK},
		{"other gzip", gzipped(t, 1, `{"a":1}`), gzipped(t, 1, `{"a":2}`), [2]string{"application/json", "application/json"}, "gzip",
			verdict.Fail},
		{"unknown compression", "1", "2", [2]string{"application/json", "application/json"}, "br", verdict.NotTested},
		{"encrypted", "a.b", "c.d", [2]string{"application/jose", "application/jose"}, "", verdict.NotTested},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "", things(location))
			id := b.session("")
			for i, body := range []string{c.first, c.second} {
				headers := []string{"Idempotency-Key", "k", "Content-Type", c.types[i]}
				if c.encoding != "" {
					headers = append(headers, "Content-Encoding", c.encoding)
				}
				require.NoError(t, b.do("POST", "/things", body, headers...).err)
			}
			_, rules := b.verdict(id)
			require.Equal(t, c.want, rules["same-body"].Status, fmt.Sprintf("%+v", rules["same-body"]))
		})
	}
}
