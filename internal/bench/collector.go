package main

import (
	"net"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// collector takes traces and throws them away.
type collector struct {
	url      string
	listener net.Listener
	received atomic.Int64 // exports
}

func newCollector() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{url: "http://" + l.Addr().String(), listener: l}
	server := &fasthttp.Server{MaxRequestBodySize: 64 << 20, Handler: func(r *fasthttp.RequestCtx) {
		c.received.Add(1)
		r.SetContentType("application/x-protobuf")
	}}
	go func() { _ = server.Serve(l) }() // ends with the listener
	return c, nil
}

func (c *collector) close() { _ = c.listener.Close() }
