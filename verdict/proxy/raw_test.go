package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// endToEnd drops the parts of a message that a proxy may change: version, order and case of names, chunk sizes, and hop-by-hop fields.
func endToEnd(message string) string {
	head, body, _ := strings.Cut(message, "\r\n\r\n")
	if strings.HasPrefix(message, "HTTP/1.1 1") { // informational
		return endToEnd(strings.TrimPrefix(head, "HTTP/1.1 ")) + endToEnd(body)
	}
	first, _, _ := strings.Cut(head, "\r\n")
	first = strings.NewReplacer("HTTP/1.0", "", "HTTP/1.1", "").Replace(first)
	h := fields(head + "\r\n\r\n")
	chunked := h.Get("Transfer-Encoding") == "chunked"
	if chunked && !strings.HasPrefix(message, "HTTP/") {
		first += " in chunks"
	}
	lines := append([]string{first}, sorted(h)...)
	if chunked {
		r := bufio.NewReader(strings.NewReader(body))
		text, err := io.ReadAll(httputil.NewChunkedReader(r))
		if err != nil {
			lines = append(lines, "error: "+err.Error())
		}
		trailers, _ := textproto.NewReader(r).ReadMIMEHeader()
		return strings.Join(append(lines, "", string(text), strings.Join(sorted(trailers), "\n")), "\n")
	}
	return strings.Join(append(lines, "", body, ""), "\n")
}

func sorted(h textproto.MIMEHeader) (lines []string) {
	for name, all := range h {
		if slices.Contains([]string{"Connection", "Transfer-Encoding", "X-Forwarded-Host", "X-Forwarded-Proto", "Trailer"}, name) {
			continue
		}
		for i, value := range all {
			if name == "X-Forwarded-For" {
				if value = strings.TrimSuffix(strings.TrimSuffix(value, "127.0.0.1"), ", "); value == "" {
					continue
				}
			}
			lines = append(lines, fmt.Sprintf("%s %d: %s", name, i, value))
		}
	}
	slices.Sort(lines)
	return lines
}

// shapes lists unusual messages of real clients and servers. The test replaces HOST by the host that the client connects to.
var shapes = map[string]struct{ request, response string }{
	"signed query":        {"GET /o?X-Sig=a%2Bb%2F;c=%zz&&b=+&a=&=&a=1&%3d HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"empty query":         {"GET /o? HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"two slashes":         {"GET //x/../y//z/. HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"escaped path":        {"GET /a%2Fb%20c/%7Ed|e\"f'()*[]/%c3%A4 HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"asterisk form":       {"OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"absolute form":       {"GET http://HOST/x?a;b HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"post of nothing":     {"POST /x HTTP/1.1\r\nHost: HOST\r\n\r\n", ""},
	"post of length 0":    {"POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n", ""},
	"get with a body":     {"GET /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\n\r\nabc", ""},
	"get in chunks":       {"GET /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", ""},
	"body without a type": {"POST /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\n\r\n{\"a", ""},
	"trailers": {"POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n" +
		"0\r\nX-Sum: 1 2\r\n\r\n", ""},
	"trailers unannounced": {"POST /x HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" +
		"0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n", ""},
	"odd fields": {"GET /x HTTP/1.1\r\nHost: HOST\r\nX-Empty:\r\nx-spaces:   a  b\tc  \r\nX-Twice: 2\r\nX-Twice: 1\r\nX_Under: 1\r\n" +
		"Cookie: a=1; b=\"2\"\r\nCookie: c=3\r\nX-Latin: \xe4\r\nAuthorization: Basic YTpi\r\n\r\n", ""},
	"forwarded": {"GET /x HTTP/1.1\r\nHost: HOST\r\nForwarded: for=1.2.3.4;proto=https\r\nX-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n" +
		"Via: 1.1 there\r\nX-Real-Ip: 1.2.3.4\r\n\r\n", ""},
	"own method": {"PURGE /x HTTP/1.1\r\nHost: HOST\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n", ""},
	"HTTP/1.0":   {"GET /x HTTP/1.0\r\nHost: HOST\r\n\r\n", "200 OK\r\nContent-Length: 2\r\n\r\nab"},
	"large": {"PUT /x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3000000\r\n\r\n" + strings.Repeat("0123456789", 300_000),
		"200 OK\r\nContent-Length: 3000000\r\n\r\n" + strings.Repeat("9876543210", 300_000)},
	"bare response": {"", "200 OK\r\nContent-Length: 15\r\n\r\n<html>no type</"},
	"dated": {"", "200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: x/1\r\n" +
		"Server: y\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n"},
	"cookies": {"", "200 OK\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\n" +
		"Set-Cookie: a=3\r\nVary: a\r\nVary: b\r\nContent-Length: 0\r\n\r\n"},
	"no content":    {"", "204 No Content\r\nETag: \"1\"\r\n\r\n"},
	"not modified":  {"", "304 Not Modified\r\nETag: \"1\"\r\nContent-Type: text/x\r\nContent-Length: 17\r\n\r\n"},
	"head":          {"HEAD /x HTTP/1.1\r\nHost: HOST\r\n\r\n", "200 OK\r\nContent-Type: text/x\r\nContent-Length: 17\r\n\r\n"},
	"in chunks":     {"", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	"with trailers": {"", "200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1 2\r\n\r\n"},
	"grpc trailers": {"", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1 2\r\n\r\n"},
	"early hints":   {"", "103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"},
	"compressed":    {"", "200 OK\r\nContent-Encoding: x\r\nContent-Length: 3\r\n\r\n\x00\x01\x02"},
	"other addresses": {"", "302 Found\r\nLocation: http://TARGET0/p3?a=http://TARGET/x\r\nContent-Location: https://TARGET/x\r\n" +
		"Operation-Location: /x?to=http://TARGET/y\r\nAzure-AsyncOperation: http://u@TARGET/x\r\nContent-Length: 0\r\n\r\n"},
	"other links": {"", "200 OK\r\nLink: <http://TARGET0/a,b>; rel=\"next\"; title=\"a, <http://TARGET/>\", </c;d>;rel=prev\r\n" +
		"Link: <?u=http://TARGET/>; rel=\"x y\"\r\nContent-Length: 0\r\n\r\n"},
}

func TestMessagesPassUnchanged(t *testing.T) {
	t.Parallel()
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.request == "" {
				s.request = "GET /x HTTP/1.1\r\nHost: HOST\r\n\r\n"
			}
			if s.response == "" {
				s.response = "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nab"
			}
			got := make(chan string, 1)
			var response string
			target := rawTarget(t, func(c *wireEnd) {
				got <- c.request()
				c.send("HTTP/1.1 " + response)
			})
			response = strings.ReplaceAll(s.response, "TARGET", target)
			ask := func(address string) (received, answered string) {
				c := dial(t, address)
				first, rest, _ := strings.Cut(strings.ReplaceAll(s.request, "HOST", "localhost:1"), "\r\n")
				c.send(first + "\r\nConnection: close\r\n" + rest)
				answered = c.all()
				return <-got, answered
			}
			directly, wanted := ask(target)
			through, came := ask(before(t, target))
			require.Equal(t, endToEnd(directly), endToEnd(through))
			require.Equal(t, endToEnd("HTTP/1.1 "+response), endToEnd(wanted))
			require.Equal(t, endToEnd(wanted), endToEnd(came))
		})
	}
}

func TestAddressesOfTheTarget(t *testing.T) {
	t.Parallel()
	var fieldsOf func(target string) string
	target := ""
	target = rawTarget(t, func(c *wireEnd) {
		c.request()
		c.send("HTTP/1.1 201 Created\r\n" + fieldsOf(target) + "Content-Length: 0\r\nConnection: close\r\n\r\n")
	})
	for sent, want := range map[string]string{
		"Location: http://TARGET/a?b=http://TARGET/c#d":                "http://PROXY/a?b=http://TARGET/c#d",
		"Location: HTTP://TARGET?x;y=%zz":                              "http://PROXY?x;y=%zz",
		"Location: //TARGET/a":                                         "//PROXY/a",
		"Location: http://TARGET":                                      "http://PROXY",
		"Location: http://TARGET.example/a":                            "http://TARGET.example/a",
		"Location: /a//b":                                              "/a//b",
		"Operation-Location: http://TARGET/a":                          "http://PROXY/a",
		"Azure-AsyncOperation: http://TARGET/a":                        "http://PROXY/a",
		`Link: <http://TARGET/a,b>; rel=next, <http://TARGET0/>;a=","`: `<http://PROXY/a,b>; rel=next, <http://TARGET0/>;a=","`,
		`Link: </a>; anchor="http://TARGET/", <//TARGET/b>;rel=x`:      `</a>; anchor="http://TARGET/", <//PROXY/b>;rel=x`,
	} {
		proxied := before(t, target)
		fieldsOf = func(target string) string { return strings.ReplaceAll(sent, "TARGET", target) + "\r\n" }
		c := dial(t, proxied)
		c.send("GET / HTTP/1.1\r\nHost: " + proxied + "\r\nConnection: close\r\n\r\n")
		name, _, _ := strings.Cut(sent, ":")
		require.Equal(t, strings.NewReplacer("TARGET", target, "PROXY", proxied).Replace(want), fields(c.all()).Get(name), sent)
	}
}

func TestMessagesAreNotBuffered(t *testing.T) {
	t.Parallel()
	step := make(chan string)
	target := rawTarget(t, func(c *wireEnd) {
		step <- c.until("\r\n\r\n")
		step <- c.until("{")
		c.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n")
		<-step
		c.send(`{"a"`)
		<-step
		c.send(`: 1}`)
		step <- c.until("}")
	})
	c := dial(t, before(t, target))
	c.send("POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 8\r\n\r\n")
	require.Contains(t, <-step, "POST /x")
	c.send("{")
	require.Equal(t, "{", <-step)
	require.Contains(t, c.until("\r\n\r\n"), "200 OK") // the response starts before the request is complete
	step <- ""
	require.Equal(t, `{"a"`, c.until(`"a"`))
	step <- ""
	c.send(`"b": 1}`)
	require.Equal(t, `"b": 1}`, <-step)
	require.Equal(t, ": 1}", c.all())
}

func TestDeliveriesPassUnchanged(t *testing.T) {
	t.Parallel()
	const delivery = "POST /hook?a;b=%zz HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n" +
		"X-Twice: 1\r\nX-Twice: 2\r\nContent-Length: 2\r\n\r\n{}"
	for _, response := range []string{"200 OK\r\nContent-Length: 5\r\n\r\n<html", "204 No Content\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n"} {
		got := make(chan string, 1)
		receiver := rawTarget(t, func(c *wireEnd) {
			got <- c.request()
			c.send("HTTP/1.1 " + response)
		})
		hooked := newProxy(t, "http://127.0.0.1:1", "").Hook(must(url.Parse("http://"+receiver+"/hook")), "")
		hook := strings.TrimPrefix(serverOf(t, hooked), "http://")
		c := dial(t, hook)
		c.send(strings.ReplaceAll(delivery, "HOST", hook))
		require.Equal(t, endToEnd("HTTP/1.1 "+response), endToEnd(c.all()))
		require.Equal(t, endToEnd(strings.ReplaceAll(delivery, "HOST", receiver)), endToEnd(<-got))
	}
}
