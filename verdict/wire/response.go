package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Page returns the error page of a proxy that cannot reach its service.
func Page(status int) []byte {
	text := http.StatusText(status)
	return fmt.Appendf(nil, "<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%d %s</h1></center>\r\n"+
		"<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n", status, text, status, text)
}

const (
	steps     = 10          // number of writes per second in Slowly
	stepLimit = time.Minute // deadline of each write
)

// ErrGone reports that the reader has closed its connection.
var ErrGone = errors.New("the reader has gone")

// Slowly writes b at perSecond bytes per second; 0 means no limit. It returns ErrGone when `gone` is closed.
func Slowly(w io.Writer, b []byte, perSecond int, gone <-chan struct{}) error {
	if perSecond == 0 {
		_, err := w.Write(b)
		return err
	}
	piece := max(1, perSecond/steps)
	for len(b) > 0 {
		n := min(piece, len(b))
		if c, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
			if err := c.SetWriteDeadline(time.Now().Add(stepLimit)); err != nil {
				return err
			}
		}
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 {
			select {
			case <-time.After(time.Duration(n) * time.Second / time.Duration(perSecond)):
			case <-gone:
				return ErrGone
			}
		}
	}
	return nil
}

// RetryAfter returns how many seconds a Retry-After header tells a client to wait. The header has a number or a date. RetryAfter returns
// nil if there is no such header, more than one, or an invalid one.
func RetryAfter(lines []string, now time.Time) *int {
	if len(lines) != 1 {
		return nil
	}
	if text := lines[0]; text != "" && strings.Trim(text, "0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil { // the number is too large
			n = math.MaxInt32
		}
		return new(int(n))
	}
	if at, err := http.ParseTime(lines[0]); err == nil {
		return new(int(min(max(0, at.Sub(now).Seconds()), math.MaxInt32)))
	}
	return nil
}

// OtherName replaces a loopback address in `host` by localhost, and localhost by 127.0.0.1. It keeps the port. It returns "" if `host` is
// not a loopback name or address.
func OtherName(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "" // the port is not a number
	}
	other := map[string]string{"127.0.0.1": "localhost", "::1": "localhost", "localhost": "127.0.0.1"}[strings.ToLower(name)]
	if other == "" || port == "" {
		return other
	}
	return net.JoinHostPort(other, port)
}

// Sum returns a hash of a text, or "" for an empty text.
func Sum(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:8])
}
