package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func framesOf(t *testing.T, r io.Reader) ([]frame, error) {
	t.Helper()
	frames := newFrameReader(r)
	var all []frame
	for {
		f, err := frames.next()
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	d := func(text string) frame { return frame{data: []byte(text), hasData: true} }
	for name, test := range map[string]struct {
		text string
		want []frame
	}{
		"one":                     {"id: 1\nevent: a\ndata: x\n\n", []frame{{id: "1", event: "a", data: []byte("x"), hasData: true}}},
		"several lines of data":   {"data: a\ndata:b\ndata\n\n", []frame{d("a\nb\n")}},
		"one space is taken off":  {"data:  a \n\n", []frame{d(" a ")}},
		"comments":                {":\n\n: hello\ndata: a\n:\n\n", []frame{d("a")}},
		"retry and id alone":      {"retry: 1500\nid: p\n\n", []frame{{id: "p", retry: 1500 * time.Millisecond}}},
		"a retry that is none":    {"retry: 1.5\ndata: a\n\nretry: -1\n\nretry: +1\n\n", []frame{d("a")}},
		"a retry beyond all":      {"retry: 99999999999999999999999\n\n", []frame{{retry: longestAsked}}},
		"unknown fields":          {"colour: red\ndata: a\ndat: b\nDATA: c\n\n", []frame{d("a")}},
		"a name without data":     {"event: a\n\ndata: b\n\n", []frame{d("b")}},
		"empty data is data":      {"data\n\n", []frame{{hasData: true}}},
		"an id with a NUL":        {"id: 1\x00\ndata: a\n\n", []frame{d("a")}},
		"an empty id":             {"id\nid:\ndata: a\n\n", []frame{d("a")}},
		"a byte order mark":       {"\ufeffdata: a\n\n\ufeffdata: b\n\n", []frame{d("a")}},
		"without an end":          {"data: a\n\nid: 2\ndata: lost\n", []frame{d("a")}},
		"what is cut in the line": {"data: a\n\ndata: lo", []frame{d("a")}},
	} {
		for _, end := range []string{"\n", "\r", "\r\n"} {
			text := strings.ReplaceAll(test.text, "\n", end)
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
				"with its end": iotest.DataErrReader(strings.NewReader(text)), "in halves": iotest.HalfReader(strings.NewReader(text)),
			} {
				got, err := framesOf(t, r)
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, test.want, got, "%s, %s, %q", name, how, end)
			}
		}
	}
}

// A frame that ends in CR is whole: the reader must not wait for what may come
// after it.
func TestAFrameIsNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"data: a\r\r", "data: a\r\n\r", "data: a\n\n"} {
		frames := newFrameReader(io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrClosedPipe)))
		f, err := frames.next()
		require.NoError(t, err, "%q", text)
		require.Equal(t, "a", string(f.data))
		_, err = frames.next()
		require.ErrorIs(t, err, io.ErrClosedPipe)
	}
}

func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	a := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	_, err := framesOf(t, io.MultiReader(strings.NewReader("data:"), bytes.NewReader(a(maxLine))))
	require.ErrorIs(t, err, errLongLine)
	lines := bytes.Repeat(append(append([]byte("data:"), a(maxLine-5)...), '\n'), 3)
	_, err = framesOf(t, bytes.NewReader(lines))
	require.ErrorIs(t, err, errLongEvent)
	got, err := framesOf(t, bytes.NewReader(append(lines[:maxLine+1:maxLine+1], '\n')))
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, got[0].data, maxLine-5)
	_, err = framesOf(t, strings.NewReader("data: \xff\n\n"))
	require.ErrorIs(t, err, errNotUTF8)
}

// FuzzFrames reads anything, in two ways that must agree.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("id: 1\r\ndata: x\r\r: c\n\nretry: 5\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, err := framesOf(t, bytes.NewReader(text))
		bytewise, err2 := framesOf(t, iotest.OneByteReader(bytes.NewReader(text)))
		require.Equal(t, whole, bytewise)
		require.Equal(t, err, err2)
	})
}

// A connection that is silent is given up and the stream resumed; heartbeats
// keep one alive, and a slow reader does not end it.
func TestAStalledStreamIsResumed(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := connections.Add(1)
		if n == 1 {
			<-r.Context().Done() // not even a status
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if n == 2 {
			_, _ = fmt.Fprint(w, "retry: 1\n\nid: 1\ndata: {}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		for range 15 { // heartbeats for longer than the limit
			_, _ = fmt.Fprint(w, ":\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
		_, _ = fmt.Fprint(w, "id: 2\ndata: {}\n\n")
	}))
	defer server.Close()
	c, err := New(Config{URL: server.URL})
	require.NoError(t, err)
	c.stall = 250 * time.Millisecond
	var ids []string
	for m, err := range c.Stream(t.Context(), StreamOptions{JobID: "j"}) {
		require.NoError(t, err)
		ids = append(ids, m.ID)
		time.Sleep(c.stall + 50*time.Millisecond) // a reader that is busy
		if m.ID == "2" {
			break
		}
	}
	require.Equal(t, []string{"1", "2"}, ids)
	require.EqualValues(t, 3, connections.Load())
}
