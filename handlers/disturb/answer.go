// Package disturb does to answers and event streams of the service what a client of a test bed has asked for.
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

// Rewrites reports whether the effect changes an answer's document. What a job has produced is no document of the contract.
func Rewrites(e *fault.Effect, r *fasthttp.Response) bool {
	return e != nil && e.Rewrites() && len(r.Header.Peek("Repr-Digest")) == 0 && bytes.Contains(r.Header.ContentType(), []byte("json"))
}

// Answer does what the effect wants to an answer that is made: its document, its media type, and how it is sent, which ends with ctx.
// It calls sent when all of an answer but its end was sent, or the client has hung up before.
func Answer(ctx context.Context, e *fault.Effect, c *fasthttp.RequestCtx, sent func(hungUp bool)) {
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
		if !stalls { // a client that has all of it finds the record
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

// silence waits until the client hangs up, which it reports as an error, for fault.MaxDelay, or until ctx ends.
func silence(ctx context.Context, gone <-chan struct{}) error {
	select {
	case <-gone:
		return wire.ErrGone
	case <-time.After(fault.MaxDelay):
	case <-ctx.Done():
	}
	return nil
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

// message returns an answer as it would be sent. One without a body ends in the middle of its head.
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
