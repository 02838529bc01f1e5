package operator

import (
	"cmp"
	"context"
	"net/http"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job/admin"
)

// Overviewer makes overviews of the service.
type Overviewer interface {
	Overview(ctx context.Context, w admin.Window) (*admin.Overview, error)
}

var windowQuery = query.Choice("window", []admin.Window{admin.LastQuarterHour, admin.LastHour, admin.LastDay})

// getOverview answers with what an operator looks at first.
func (a *API) getOverview(c *call) (answer, error) {
	overview, err := a.deps.Overview.Overview(c.Context(), cmp.Or(admin.Window(c.param("window")), admin.LastQuarterHour))
	if err != nil {
		return answer{}, err
	}
	return asJSON(http.StatusOK, overview)
}
