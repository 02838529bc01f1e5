package experiments

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// get reads an address. Anything but 200 is an error.
func get(ctx context.Context, client *http.Client, url string, header http.Header) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	if header != nil {
		request.Header = header.Clone()
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, content)
	}
	return content, response.Header, err
}

// listen serves on a free port until the listener is closed; who has a connection
// then is not waited for.
func listen(server *fasthttp.Server) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = server.Serve(l) }()
	return l, nil
}

// counter counts requests that it has answered.
type counter struct {
	atomic.Int64
	answer fasthttp.RequestHandler
}

func (c *counter) handle(r *fasthttp.RequestCtx) {
	c.answer(r)
	c.Add(1)
}
