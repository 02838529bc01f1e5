package monitoring

import (
	"fmt"
	"net/http"

	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/operators"
)

func requireOperator(guard operators.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, refusal := guard.Check(r)
		if refusal == nil {
			next.ServeHTTP(w, r)
			return
		}
		refusal.Header(w.Header())
		if refusal.Status == http.StatusUnauthorized {
			http.Error(w, refusal.Detail, refusal.Status) // a browser shows this text when the user cancels the password dialog
			return
		}
		refuse(w, refusal.Status, refusal.Detail)
	})
}

// checkOrigin refuses a request if its host is not this listener's, or if a page of another origin sent it. It checks the origin only if
// the request has a Sec-Fetch-Site header. Guard checks the origin of other requests.
func (a Admin) checkOrigin(next http.Handler) http.Handler {
	hosts := a.Hosts
	if hosts == nil && a.Guard.Tokens.None() {
		hosts = localhosts.Only("")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hosts != nil && !hosts(r.Host):
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("This listener serves only its own machine, but the request names "+
				"the host %.100q. Use localhost, or set FORGERUN_ADMIN_TOKEN to protect the listener.", r.Host))
		case r.Header.Get("Sec-Fetch-Site") != "" && localhosts.FromOtherPage(r.Method, r.Host, r.Header.Get):
			refuse(w, http.StatusForbidden, "A page of another site or port sent this request. Open the address directly, not from that page.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
