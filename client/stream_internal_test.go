package client

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
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
		"one frame":                    {"id: 1\nevent: a\ndata: x\n\n", []frame{{id: "1", event: "a", data: []byte("x"), hasData: true}}},
		"several lines of data":        {"data: a\ndata:b\ndata\n\n", []frame{d("a\nb\n")}},
		"one leading space is removed": {"data:  a \n\n", []frame{d(" a ")}},
		"comments":                     {":\n\n: hello\ndata: a\n:\n\n", []frame{d("a")}},
		"frame without data":           {"retry: 1500\nid: p\n\n", []frame{{id: "p", retry: 1500 * time.Millisecond}}},
		"invalid retry":                {"retry: 1.5\ndata: a\n\nretry: -1\n\nretry: +1\n\n", []frame{d("a")}},
		"huge retry":                   {"retry: 99999999999999999999999\n\n", []frame{{retry: longestAsked}}},
		"unknown fields":               {"colour: red\ndata: a\ndat: b\nDATA: c\n\n", []frame{d("a")}},
		"event name without data":      {"event: a\n\ndata: b\n\n", []frame{d("b")}},
		"empty data":                   {"data\n\n", []frame{{hasData: true}}},
		"id with NUL":                  {"id: 1\x00\ndata: a\n\n", []frame{d("a")}},
		"empty id":                     {"id\nid:\ndata: a\n\n", []frame{d("a")}},
		"byte order mark":              {"\ufeffdata: a\n\n\ufeffdata: b\n\n", []frame{d("a")}},
		"frame without a blank line":   {"data: a\n\nid: 2\ndata: lost\n", []frame{d("a")}},
	} {
		for _, end := range []string{"\n", "\r", "\r\n"} {
			text := strings.ReplaceAll(test.text, "\n", end)
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
				"with EOF": iotest.DataErrReader(strings.NewReader(text)), "in halves": iotest.HalfReader(strings.NewReader(text)),
			} {
				got, err := framesOf(t, r)
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, test.want, got, "%s, %s, %q", name, how, end)
			}
		}
	}
}

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
	require.ErrorIs(t, err, bufio.ErrTooLong)
	lines := bytes.Repeat(append(append([]byte("data:"), a(maxLine-5)...), '\n'), 3)
	_, err = framesOf(t, bytes.NewReader(lines))
	require.ErrorIs(t, err, errLongEvent)
	got, err := framesOf(t, bytes.NewReader(append(lines[:maxLine+1:maxLine+1], '\n')))
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, got[0].data, maxLine-5)
	_, err = framesOf(t, strings.NewReader("data: \xff\n\n"))
	require.ErrorIs(t, err, errNotUTF8)
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("id: 1\r\ndata: x\r\r: c\n\nretry: 5\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		whole, err := framesOf(t, bytes.NewReader(text))
		bytewise, err2 := framesOf(t, iotest.OneByteReader(bytes.NewReader(text)))
		require.Equal(t, whole, bytewise)
		require.Equal(t, err, err2)
	})
}

type heldConnections struct{ connections int }

func (h *heldConnections) RoundTrip(r *http.Request) (*http.Response, error) {
	h.connections++
	if h.connections == 1 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	go func(third bool) {
		if !third {
			_, _ = io.WriteString(w, "retry: 1\n\nid: 1\ndata: {}\n\n")
			return
		}
		for range 4 {
			_, _ = io.WriteString(w, ":\n\n")
			time.Sleep(maxSilence / 2)
		}
		_, _ = io.WriteString(w, "id: 2\ndata: {}\n\n")
	}(h.connections > 2)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r}, nil
}

func TestAStalledStreamIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &heldConnections{}
		c, err := New(Config{URL: "http://forgerun.example", HTTP: &http.Client{Transport: service}})
		require.NoError(t, err)
		var ids []string
		for m, err := range c.Stream(t.Context(), StreamOptions{JobID: "j"}) {
			require.NoError(t, err)
			ids = append(ids, m.ID)
			time.Sleep(2 * c.stall) // the program is busy, so the silence does not count
			if m.ID == "2" {
				break
			}
		}
		require.Equal(t, []string{"1", "2"}, ids)
		require.Equal(t, 3, service.connections)
	})
}
