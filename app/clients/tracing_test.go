package clients

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestSpansOfKeysNameThem(t *testing.T) {
	t.Parallel()
	k := newKeyWorld(t)
	var client job.ID
	var first, second job.IssuedKey
	for _, do := range []func(ctx context.Context) error{
		func(ctx context.Context) error {
			c, err := k.CreateClient(ctx, admin)
			client = c.ID
			return err
		},
		func(ctx context.Context) (err error) {
			first, err = k.CreateKey(ctx, admin, client, false, job.ScopeAll)
			return err
		},
		func(ctx context.Context) (err error) { second, err = k.RenewKey(ctx, admin, client); return err },
		func(ctx context.Context) error { return k.RevokeKey(ctx, admin, client, first.ID) },
		func(ctx context.Context) error {
			if k.RevokeKey(ctx, admin, client, "not a key of this client") == nil {
				return errors.New("a key that does not exist was revoked")
			}
			return nil
		},
	} {
		k.w.Traced(func(ctx context.Context) { require.NoError(t, do(ctx)) })
	}
	keys := []any{nil, first.ID, second.ID, first.ID, nil}
	for i, span := range k.w.SpansNamed("request") {
		require.Equal(t, keys[i], apptest.Attributes(span)["forgerun.key_id"], i)
		require.NotContains(t, span.Attributes, first.Secret)
		if i < 4 {
			require.Equal(t, client.String(), apptest.Attributes(span)["forgerun.client_id"])
		}
	}
}
