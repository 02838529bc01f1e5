package apptest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (w *World) Orphans() []job.Held {
	held, err := w.Store.Orphans(context.Background(), 1000)
	require.NoError(w.T, err)
	return held
}
