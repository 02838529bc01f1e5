package wire_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		lines []string
		want  *int
	}{
		{nil, nil}, {[]string{""}, nil}, {[]string{"0"}, new(0)}, {[]string{"61"}, new(61)}, {[]string{"007"}, new(7)},
		{[]string{"-1"}, nil}, {[]string{"+1"}, nil}, {[]string{"1.5"}, nil}, {[]string{"1e3"}, nil}, {[]string{"soon"}, nil},
		{[]string{"1", "2"}, nil}, {[]string{"1", "1"}, nil}, {[]string{"1, 2"}, nil}, {[]string{"1 s"}, nil},
		{[]string{"99999999999999999999"}, new(math.MaxInt32)},
		{[]string{now.Add(90 * time.Second).Format(http.TimeFormat)}, new(90)}, {[]string{now.Add(-time.Hour).Format(http.TimeFormat)}, new(0)},
		{[]string{now.Add(time.Minute).Format(time.ANSIC)}, new(60)}, {[]string{"Tue, 01 Jan 2030 00:00:00"}, nil},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, new(math.MaxInt32)},
	} {
		require.Equal(t, c.want, wire.RetryAfter(c.lines, now), "%q", c.lines)
	}
	for _, form := range append(fault.RetryAfters, "") {
		lines, _ := (&fault.Effect{RetryAfter: new(3), RetryAfterAs: form}).RetryAfterLines(now)
		want := map[fault.RetryAfter]*int{"": new(3), fault.AsDate: new(3), fault.AsPast: new(0)}[form]
		require.Equal(t, want, wire.RetryAfter(lines, now), form)
	}
}
