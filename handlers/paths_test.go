package handlers

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A character that has no meaning of its own may be sent as its code (RFC 3986, section 6.2.2.2), which is read once: that of a
// percent sign begins no other one, and that of a slash separates nothing.
func TestPathsThatMeanTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	w.lookups.strict = true
	id := jobID.String()
	for path, same := range map[string]string{
		"/v1/jobs/" + strings.ReplaceAll(id, "-", "%2D"): jobSelf, "/v1/jobs/" + strings.ReplaceAll(id, "-", "%2d"): jobSelf,
		"/%761/%6Aobs/" + id: jobSelf, jobSelf + "/attempts/%31": jobSelf + "/attempts/1", "/problems/%63onflict": "/problems/conflict",
		"/%2Ewell%2Dknown/http-message-signatures-directory": "/.well-known/http-message-signatures-directory",
		"/v1/jobs%2F" + id: "", "/v1/jobs/" + strings.ReplaceAll(id, "-", "%252D"): "", jobSelf + "%2Freport": "", "/v1/jobs/%2e%2e": "",
		jobSelf + "%3Fx": "", jobSelf + "%2": "", jobSelf + "%": "", jobSelf + "%zz": "",
	} {
		r, err := http.NewRequest("GET", "http://forgerun.test/", nil)
		require.NoError(t, err)
		r.URL.Opaque = "//forgerun.test" + path // as it is
		r.Header.Set("Authorization", "Bearer "+goodKey)
		res, err := w.server.Test(r)
		require.NoError(t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if same == "" {
			require.Equal(t, 404, res.StatusCode, path)
			continue
		}
		require.Equal(t, 200, res.StatusCode, path)
		require.Equal(t, w.send("GET", same, "").text, string(text), path)
	}
}
