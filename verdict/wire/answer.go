package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Page returns the error page of a proxy that cannot reach its service.
func Page(status int) []byte {
	text := http.StatusText(status)
	return fmt.Appendf(nil, "<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%d %s</h1></center>\r\n"+
		"<hr><center>proxy</center>\r\n</body>\r\n</html>\r\n", status, text, status, text)
}

const (
	steps     = 10          // per second of slow writing
	stepLimit = time.Minute // time limit of each step
)

// ErrGone says that the reader has closed its connection.
var ErrGone = errors.New("the reader has gone")

// Slowly writes b at a number of bytes per second, or at once if that is 0. It stops when gone is closed.
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
