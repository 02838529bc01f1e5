package handlers

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/verdict"
)

// lastRecord is what was recorded last, nil for nothing.
func (f *fakeTestbed) lastRecord() *verdict.Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// A client that closes in the middle of a slow answer has not got it. One that has it finds it recorded.
func TestHangsUpInASlowAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	ask := func(speed int) net.Conn {
		c := w.dial()
		w.write(c, fmt.Sprintf("GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s: {\"slow_bytes\":%d}\r\n\r\n",
			goodKey, headerFault, speed))
		return c
	}
	c := ask(1)
	_, err := io.ReadFull(c, make([]byte, 10))
	require.NoError(t, err)
	require.Nil(t, w.testbed.lastRecord())
	require.NoError(t, c.Close())
	testkit.Eventually(t, "it is recorded", func() bool { return w.testbed.lastRecord() != nil })
	require.True(t, w.testbed.lastRecord().HungUp)

	_, err = io.ReadAll(ask(1 << 20))
	require.NoError(t, err)
	require.False(t, w.testbed.lastRecord().HungUp)
}

// A key is found in a URL however it is escaped.
func TestKeysInURLsAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]bool{
		"/v1/jobs?limit=10": false, "/v1/jobs?a=" + goodKey: true, "/v1/jobs?a=%66rk%5Fgood_key": true, "/v1/jobs?frk%5Fgood": true,
		"/v1/jobs/" + url.PathEscape(goodKey): true, "/v1/jobs/%66rk_good_key": true,
	} {
		w.send("GET", path, "")
		require.Equal(t, want, w.testbed.lastRecord().KeyInURL, path)
	}
}
