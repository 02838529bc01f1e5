// Package disturb changes responses and event streams in the way that a client of a test bed has requested.
package disturb

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// Rewrites reports whether the effect changes the JSON body of a response. Job results are never changed, because their digest would no
// longer match.
func Rewrites(e *fault.Effect, r *fasthttp.Response) bool {
	return e != nil && e.Rewrites() && len(r.Header.Peek("Repr-Digest")) == 0 && bytes.Contains(r.Header.ContentType(), []byte("json"))
}

// Response applies the effect to a finished response. It changes the JSON body and the media type, and can send the response slowly or
// in part. Sending stops when ctx ends. If Response sends the response itself, it calls `sent` once: before the last byte, or after the
// client has hung up.
func Response(ctx context.Context, e *fault.Effect, c *fasthttp.RequestCtx, sent func(hungUp bool)) {
	r := &c.Response
	if Rewrites(e, r) {
		r.SetBody(testbed.Shape.Rewrite(e, r.Body()))
		if e.Language != "" {
			r.Header.Set(fasthttp.HeaderContentLanguage, e.Language)
		}
	}
	if e.ContentType != "" {
		r.Header.SetContentType(e.ContentType)
	}
	if e.Close == "" && e.SlowBytes == 0 {
		return
	}
	var head, body []byte
	stalls := e.Close == fault.CloseStall
	if e.Close == "" || e.Close == fault.CloseMidBody || stalls {
		head, body = message(r)
		if e.Close != "" {
			body = body[:len(body)/2]
		}
	}
	r.ResetBody()
	r.Header.SetConnectionClose()
	c.HijackSetNoResponse(true)
	served := c.Conn()
	c.Hijack(func(conn net.Conn) {
		defer func() {
			if e.Reset {
				discard(served)
			}
			_ = conn.Close()
		}()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if head == nil {
			return
		}
		last := len(body)
		if !stalls { // send the last byte after the recording, so that a client with the whole response finds the record
			last = max(0, last-1)
		}
		gone, stop := whenGone(served)
		_, err := conn.Write(head)
		if err == nil {
			err = wire.Slowly(conn, body[:last], e.SlowBytes, gone)
		}
		if err == nil && stalls {
			err = silence(ctx, gone)
		}
		stop()
		if sent(err != nil && ctx.Err() == nil); err == nil {
			_, _ = conn.Write(body[last:])
		}
	})
}

func silence(ctx context.Context, gone <-chan struct{}) error {
	select {
	case <-gone:
		return wire.ErrGone
	case <-time.After(fault.MaxDelay):
	case <-ctx.Done():
	}
	return nil
}

func whenGone(c net.Conn) (gone <-chan struct{}, stop func()) {
	closed := make(chan struct{})
	if watched, ok := c.(interface {
		WhenGone(gone func()) (stop func())
	}); ok {
		return closed, watched.WhenGone(func() { close(closed) })
	}
	return closed, func() {}
}

func discard(c net.Conn) {
	if d, ok := c.(interface{ Discard() }); ok {
		d.Discard()
	}
}

// message returns the head and body of the response. If the body is empty, the second half of the head takes its place, so that a fault
// can cut it off.
func message(r *fasthttp.Response) (head, body []byte) {
	body = bytes.Clone(r.Body())
	r.Header.SetConnectionClose()
	r.Header.SetContentLength(len(body))
	r.Header.Set(fasthttp.HeaderContentLength, strconv.Itoa(len(body)))
	head = bytes.Clone(r.Header.Header())
	if len(body) == 0 {
		return head[:len(head)/2], head[len(head)/2:]
	}
	return head, body
}
