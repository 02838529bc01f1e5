// Package disturb does to answers and event streams of the service what a client of a test bed has asked for.
package disturb

import (
	"bytes"
	"context"
	"net"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// Answer does what the effect wants to an answer that is made: its document, its media type, and how it is sent, which ends with ctx.
// It calls sent when all of an answer but its end was sent, or the client has hung up before.
func Answer(ctx context.Context, e *fault.Effect, c *fasthttp.RequestCtx, sent func(hungUp bool)) {
	r := &c.Response
	own := len(r.Header.Peek("Repr-Digest")) > 0 // what a job has produced, which is no document of the contract
	if e.Rewrites() && !own && bytes.Contains(r.Header.ContentType(), []byte("json")) {
		r.SetBody(testbed.Shape.Rewrite(e, r.Body()))
		r.Header.Del(fasthttp.HeaderETag) // it is another representation
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
	if e.Close == "" || e.Close == fault.CloseMidBody {
		head, body = message(r)
		if e.Close == fault.CloseMidBody {
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
		last := max(0, len(body)-1)
		gone, stop := whenGone(served)
		_, err := conn.Write(head)
		if err == nil {
			err = wire.Slowly(conn, body[:last], e.SlowBytes, gone)
		}
		stop()
		if sent(err != nil && ctx.Err() == nil); err == nil {
			_, _ = conn.Write(body[last:])
		}
	})
}

// whenGone returns a channel that is closed when the client hangs up, until stop is called.
func whenGone(c net.Conn) (gone <-chan struct{}, stop func()) {
	closed := make(chan struct{})
	if watched, ok := c.(interface {
		WhenGone(gone func()) (stop func())
	}); ok {
		return closed, watched.WhenGone(func() { close(closed) })
	}
	return closed, func() {}
}

// discard makes the end of a connection a reset.
func discard(c net.Conn) {
	if d, ok := c.(interface{ Discard() }); ok {
		d.Discard()
	}
}

// message gives an answer as it would be sent. One without a body ends in the middle of its head.
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
