package redact

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const hidden = "s3cr3t-Value.42"

func TestSecretsAreMasked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"api_key", "apikey", "API-Key", "ApiKey", "key", "KEY", "token", "access_token", "refresh_token", "id_token", "sig", "signature",
		"X-Amz-Signature", "X-Amz-Security-Token", "code", "client_secret", "password", "auth", "x-functions-key", "subscription-key", "sid",
		"api%5Fkey", "%6bey", "auth%5Btoken%5D", "webhook_secret", "Ocp-Apim-Subscription-Key", "jwt",
	} {
		for _, form := range []string{
			"/things?NAME=SECRET", "/things?a=1&NAME=SECRET&b=2", "https://host.example/x?NAME=SECRET#top", "/things;NAME=SECRET/y?a=1",
			"/things?a=1;NAME=SECRET", "https://host.example/#NAME=SECRET&state=1", "/go?to=https%3A%2F%2Fhost.example%2F%3FNAME%3DSECRET",
			"?NAME=SECRET",
		} {
			text := strings.NewReplacer("NAME", name, "SECRET", hidden).Replace(form)
			for _, shown := range []string{
				URL(text), Text(text), KeepURL(text), Text("see <" + text + `>; rel="next"`),
				Text("Get " + text + ": EOF"),
			} {
				if strings.Contains(form, "%3A") && strings.Contains(name, "%") {
					continue // escaped twice
				}
				require.NotContains(t, shown, hidden, text)
				require.Contains(t, shown+"***", "***", text)
			}
			_, query, _ := strings.Cut(text, "?")
			require.NotContains(t, Query(query), hidden, text)
		}
	}
	for _, text := range []string{
		"https://me:" + hidden + "@host.example/x", "https://" + hidden + "@host.example", "//me:" + hidden + "@host", "Bearer " + hidden,
		"basic  " + hidden, "dial https://me:p@" + hidden + "@host.example: refused",
	} {
		require.NotContains(t, Text(text), hidden, text)
	}
	for _, text := range []string{
		"frk_abcdefghijklmnop", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "sk_live_abcdefghijklmnop", "ghp_abcdefghijklmnop",
		"eyJhbGciOiJI.eyJzdWIiOiIx.abc-def",
	} {
		require.NotContains(t, Text("an event of "+text+", at last"), text)
		require.NotContains(t, URL("/hooks/"+text+"/x"), text)
	}
}

func TestOtherTextsDoNotChange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "/", "/things?a=1&b=two%20words&c", "/v1/jobs?state=FAILED&limit=10&cursor=abc", `W/"1a2b"`, "wait=10, respond-async", "*/*;q=0.8",
		"application/json; charset=utf-8", "https://host.example/things?filter=a%3Db%3Dc", "order-17", "/monkey?monkeys=3&keyboard=de",
		"Only bearers may pass", "text/event-stream", "2030-01-31T12:00:00Z", "multipart/form-data; boundary=x",
	} {
		require.Equal(t, text, Text(text))
		require.Equal(t, text, URL(text))
		require.Equal(t, text, KeepURL(text))
	}
	once := URL("/things?token=" + hidden)
	require.Equal(t, once, URL(once))
	require.Equal(t, once, Text(once))
}

// Kept values are short. They are equal if and only if the original values are equal.
func TestKeptValuesCompare(t *testing.T) {
	t.Parallel()
	require.Equal(t, URL("/a?key=1"), URL("/a?key=1"))
	require.NotEqual(t, URL("/a?key=1"), URL("/a?key=2"))
	long := strings.Repeat("e", 60_000)
	for _, keep := range []func(string) string{Keep, KeepURL, KeepQuery} {
		require.Equal(t, keep(long+"a"), keep(long+"a"))
		require.NotEqual(t, keep(long+"a"), keep(long+"b"))
		require.LessOrEqual(t, len(keep(long)), 2*MaxText)
		require.Equal(t, keep("ü"+long), strings.ToValidUTF8(keep("ü"+long), ""))
	}
	require.Contains(t, "&"+KeepQuery("a="+long+"&cursor=1"), "&cursor=1")
}
