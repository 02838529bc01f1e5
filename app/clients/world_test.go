package clients

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

const (
	operatorToken = "the-operators-token"
	readerToken   = "the-readers-token"
)

var testOperators, _ = operators.Parse(operatorToken, readerToken)

var testKeys = Config{Operators: testOperators, OpenRegistration: true, TTL: 90 * 24 * time.Hour}

var (
	anonymous = job.Caller{}
	admin     = job.Caller{Admin: true}
)

type keyWorld struct {
	*Service
	*apptest.World
	t   *testing.T
	url string
}

func withKeys(t *testing.T, f func(t *testing.T, k *keyWorld)) {
	t.Helper()
	t.Parallel()
	url := repotest.URL(t)
	k := openKeys(t, url)
	k.pass(time.Hour)
	f(t, k)
}

func openKeys(t *testing.T, url string, change ...func(*Config)) *keyWorld {
	cfg := testKeys
	for _, f := range change {
		f(&cfg)
	}
	k := &keyWorld{t: t, url: url, World: apptest.NewWorld(t)}
	store := repotest.OpenURL(t, url, func(c *repo.Config) { c.Clock = clock.New() })
	_, err := store.ReadClockMove(t.Context())
	require.NoError(t, err)
	k.Service = New(cfg, store, store.Now, k.Logger)
	return k
}

func (k *keyWorld) pass(d time.Duration) {
	k.t.Helper()
	_, finish, err := k.store.MoveClock(k.t.Context(), func(c testbed.ClockState) (testbed.ClockState, error) {
		c.Now, c.Frozen = job.Time(time.Time(c.Now).Add(d)), true
		return c, nil
	})
	require.NoError(k.t, err)
	apptest.Must(finish(k.t.Context()))(k.t)
}

func (k *keyWorld) elsewhere(change ...func(*Config)) *keyWorld {
	return openKeys(k.t, k.url, change...)
}

func (k *keyWorld) cutOff(key job.IssuedKey) *keyWorld {
	other := k.elsewhere()
	other.memory.connected(true)
	require.NotNil(k.t, apptest.Must(other.find(k.t.Context(), key.ID))(k.t))
	other.store.Close()
	return other
}

func (k *keyWorld) keys(client job.ID) (keys []job.APIKey) {
	k.t.Helper()
	require.NoError(k.t, k.store.ChangeKeys(k.t.Context(), client, func(_ job.Client, _ time.Time, all []job.APIKey) (job.KeyChange, error) {
		keys = all
		return job.KeyChange{}, nil
	}))
	return keys
}

func second[T any](_ T, err error) error { return err }

func (k *keyWorld) newClient() job.ID {
	k.t.Helper()
	c := apptest.Must(k.CreateClient(context.Background(), admin))(k.t)
	return c.ID
}

func (k *keyWorld) issue(key job.IssuedKey, err error) job.IssuedKey {
	k.t.Helper()
	require.NoError(k.t, err)
	require.NotEmpty(k.t, key.Secret)
	return key
}

func (k *keyWorld) newKey() job.IssuedKey {
	k.t.Helper()
	return k.issue(k.create(admin, k.newClient(), false))
}

func (k *keyWorld) refused(want job.Code, err error, why ...any) {
	k.t.Helper()
	require.Equal(k.t, want, job.CodeOf(err), why...)
}

func (k *keyWorld) storageFailed(err error) {
	k.t.Helper()
	require.Error(k.t, err)
	require.Contains(k.t, job.CodeOf(err), "RFA_STORAGE")
}

func (k *keyWorld) valid(keys ...job.IssuedKey) {
	k.t.Helper()
	for _, key := range keys {
		require.Empty(k.t, k.code(key.Secret))
	}
}

func (k *keyWorld) ended(want job.Code, keys ...job.IssuedKey) {
	k.t.Helper()
	for _, key := range keys {
		require.Equal(k.t, want, k.code(key.Secret))
	}
}

// create advances the clock, so that no two keys have the same time.
func (k *keyWorld) create(caller job.Caller, client job.ID, rotate bool) (job.IssuedKey, error) {
	return k.scoped(caller, client, rotate, job.ScopeAll)
}

func (k *keyWorld) scoped(caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	defer k.pass(time.Microsecond)
	return k.CreateKey(context.Background(), caller, client, rotate, scope)
}

func (k *keyWorld) renew(caller job.Caller, client job.ID) (job.IssuedKey, error) {
	defer k.pass(time.Microsecond)
	return k.RenewKey(context.Background(), caller, client)
}

func (k *keyWorld) revoke(caller job.Caller, client job.ID, id string) error {
	return k.RevokeKey(context.Background(), caller, client, id)
}

func (k *keyWorld) code(bearer string) job.Code {
	if _, err := k.Authenticate(context.Background(), bearer); err != nil {
		return job.CodeOf(err)
	}
	return ""
}

func callerOf(key job.IssuedKey) job.Caller {
	return job.Caller{ClientID: key.ClientID, KeyID: key.ID, Scope: key.Scope}
}
