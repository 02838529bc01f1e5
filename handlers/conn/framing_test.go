package conn

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

const (
	post    = "POST / HTTP/1.1\r\nHost: x\r\n"
	chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
)

// wellFramed are requests that fasthttp and net/http both read completely.
var wellFramed = []string{
	"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
	post + "Content-Length: 3\r\n\r\na\nb", post + "Content-Length: 0\r\n\r\n",
	post + "content-length:\t2 \r\n\r\n\n\n", chunked + "0\r\n\r\n", chunked + "3\r\na\nb\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
	post + "transfer-encoding:Chunked\r\n\r\n1 \r\n\r\r\n0\r\nA: b\r\nC:d\r\n\r\n",
}

// misframed are requests with an error in their last line.
var misframed = map[FramingError][]string{
	errLine: {
		"GET / HTTP/1.1\n", post + "A: b\n", post + "\n", post + "A: b\rC: d\r\n", post + "A: b\r\r\n", chunked + "1\n", chunked + "1\r\na\n",
		chunked + "0\n", chunked + "0\r\n\n", chunked + "0\r\nA: b\n", chunked + "1;a\rb\r\n",
	},
	errField: {post + " c\r\n", post + "A: b\r\n\tc\r\n", chunked + "0\r\nA: b\r\n c\r\n",
		post + "Content-Length : 1\r\n", post + "Transfer-Encoding\t: chunked\r\n"},
	errLength: {
		post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
		post + "Content-Length: 1\r\nContent-Length: 1\r\n", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		post + "Content-Length: +1\r\n", post + "Content-Length: -1\r\n", post + "Content-Length: 1, 1\r\n", post + "Content-Length:\r\n",
		post + "Content-Length: 0x1\r\n", post + "Content-Length: 9223372036854775808\r\n", post + "Content-Length: 1_0\r\n",
		post + "Transfer-Encoding: gzip, chunked\r\n", post + "Transfer-Encoding: \vchunked\r\n", post + "Transfer-Encoding: identity\r\n",
		post + "Transfer-Encoding:\r\n", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
	},
	errChunk: {chunked + "\r\n", chunked + "x\r\n", chunked + "-1\r\n",
		chunked + "1 1\r\n", chunked + "100000000\r\n", chunked + "1\r\nab\r\n"},
}

func passed(f *framing, stream string, step int) (ends []int, read int, err error) {
	for read < len(stream) && err == nil {
		var n int
		n, err = f.pass([]byte(stream[read:min(read+step, len(stream))]))
		read += n
		if f.next == requestLine && f.left == 0 && len(f.line) == 0 {
			ends = append(ends, read)
		}
	}
	return ends, read, err
}

func TestFraming(t *testing.T) {
	t.Parallel()
	all := strings.Join(wellFramed, "")
	for step := 1; step < 50; step++ {
		_, read, err := passed(&framing{}, all, step)
		require.NoError(t, err)
		require.Equal(t, len(all), read)
		for want, streams := range misframed {
			for _, stream := range streams {
				_, read, err := passed(&framing{}, all+stream+post, step)
				require.Equal(t, want, err, "%q", stream)
				require.Equal(t, len(all)+len(stream)-1, read, "the bad line lacks its end: %q", stream)
			}
		}
	}
	for _, stream := range []string{
		"GET /" + strings.Repeat("x", maxExtra), chunked + "1;" + strings.Repeat("x", maxExtra), chunked + strings.Repeat("0", maxExtra+20),
		chunked + strings.Repeat("1;x\r\n.\r\n", maxExtra) + "1;x\r\n.\r\n",
		chunked + "0\r\n" + strings.Repeat("A: b\r\n", maxExtra/4+1) + "\r\n",
	} {
		_, _, err := passed(&framing{}, stream, 1000)
		require.ErrorIs(t, err, ErrTooMuch, "%.80q", stream)
	}
}

// FuzzFraming checks that framing, fasthttp and net/http find the same ends of accepted requests.
func FuzzFraming(f *testing.F) {
	for _, stream := range wellFramed {
		f.Add([]byte(stream + stream))
	}
	for _, streams := range misframed {
		for _, stream := range streams {
			f.Add([]byte(stream + stream))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ends, read, _ := passed(&framing{}, string(stream), 1)
		for name, next := range map[string]func(*bufio.Reader) error{"net/http": nextOfHTTP, "fasthttp": nextOfFasthttp} {
			source := bytes.NewReader(stream[:read])
			r := bufio.NewReader(source)
			for last, end := -1, 0; end != last; {
				if err := next(r); err != nil {
					break // the server closes the connection
				}
				last, end = end, read-source.Len()-r.Buffered()
				require.Contains(t, ends, end, "%s ends a request of %q elsewhere", name, stream)
			}
		}
	})
}

func nextOfHTTP(r *bufio.Reader) error {
	request, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err
}

func nextOfFasthttp(r *bufio.Reader) error {
	request := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(request)
	return request.Read(r)
}
