package proxy_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// The proxy finds a key in a URL, in any escaping, if some request had the key in a header. The journal never shows the key.
func TestKeysInURLs(t *testing.T) {
	t.Parallel()
	const key = "s3cr3t/Key+42="
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	type ask struct{ path, header, value string }
	query := ask{path: "/list?a=1&unremarkable=" + url.QueryEscape(key) + "&b"}
	for name, c := range map[string]struct {
		asks []ask
		want verdict.Status
	}{
		"in the query":                     {[]ask{{query.path, "Authorization", "Bearer " + key}}, verdict.Warn},
		"key of another header":            {[]ask{{query.path, "X-Api-Key", key}}, verdict.Warn},
		"password of Basic":                {[]ask{{query.path, "Authorization", basic("me", key)}}, verdict.Warn},
		"user of Basic without a password": {[]ask{{query.path, "Authorization", basic(key, "")}}, verdict.Warn},
		"key of an earlier request":        {[]ask{{"/x", "Authorization", "Bearer " + key}, query}, verdict.Warn},
		"key of a later request":           {[]ask{query, {"/x", "X-Api-Key", key}}, verdict.Warn},
		"api_key, key of a later request":  {[]ask{{path: "/x?api_key=" + url.QueryEscape(key)}, {"/x", "X-Api-Key", key}}, verdict.Warn},
		"path, key of a later request":     {[]ask{{path: "/keys/" + url.PathEscape(key) + "/x"}, {"/x", "X-Api-Key", key}}, verdict.Warn},
		"in the path":                      {[]ask{{"/keys/" + url.PathEscape(key) + "/x", "X-Api-Key", key}}, verdict.Warn},
		"not escaped":                      {[]ask{{"/x?k=" + key, "X-Api-Key", key}}, verdict.Warn},
		"parameter without a name":         {[]ask{{"/x?" + url.QueryEscape(key), "X-Api-Key", key}}, verdict.Warn},
		"after a scheme":                   {[]ask{{"/x?k=Bearer%20" + url.QueryEscape(key), "X-Api-Key", key}}, verdict.Warn},
		"escaped twice":                    {[]ask{{"/x?to=" + url.QueryEscape("/y?k="+url.QueryEscape(key)), "X-Api-Key", key}}, verdict.Warn},
		"escaped letter by letter":         {[]ask{{"/x?k=%734567890%31", "X-Api-Key", "s45678901"}}, verdict.Warn},
		"next to invalid escapes":          {[]ask{{"/x?%zz;k=" + url.QueryEscape(key), "X-Api-Key", key}}, verdict.Warn},
		"access_token":                     {[]ask{{path: "/x?access_token=a"}}, verdict.Warn},
		"no key":                           {[]ask{{"/x?k=v", "X-Api-Key", key}}, verdict.OK},
		"part of a longer word":            {[]ask{{"/jobs/job-12345678", "X-Api-Key", "job-1234"}}, verdict.OK},
		"plain word":                       {[]ask{{"/customers", "X-Api-Key", "customers"}}, verdict.OK},
		"idempotency key":                  {[]ask{{"/x/order-12345678", "Idempotency-Key", "order-12345678"}}, verdict.OK},
		"key of the description":           {[]ask{{"/x/order-12345678", "X-Request-Token", "order-12345678"}}, verdict.OK},
		"cookie":                           {[]ask{{"/x/order-12345678", "Cookie", "order-12345678"}}, verdict.OK},
		"user of Basic with a password":    {[]ask{{"/accounts/AC1234567890", "Authorization", basic("AC1234567890", key)}}, verdict.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, `key: ["header:X-Request-Token"]`, http.NotFoundHandler())
			id := b.session("")
			for _, a := range c.asks {
				headers := []string{}
				if a.header != "" {
					headers = []string{a.header, a.value}
				}
				require.NoError(t, b.do("GET", a.path, "", headers...).err)
			}
			_, rules := b.verdict(id)
			require.Equal(t, c.want, rules["no-key-in-url"].Status)
			journal := string(b.own("GET", "sessions/"+id+"/journal", "", 200))
			for _, form := range []string{key, url.QueryEscape(key), url.PathEscape(key)} {
				require.False(t, strings.Contains(journal, form), journal)
			}
		})
	}
}
