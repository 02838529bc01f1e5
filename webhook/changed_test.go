package webhook

import (
	"crypto/ed25519"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// sendChanged sends a delivery with an effect, and gives what the receiver has of it.
func sendChanged(t *testing.T, e testbed.Effect) (c captured, secret string, public ed25519.PublicKey) {
	t.Helper()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	p := sampleParcel(t)
	p.Target.URL = r.URL + "/in?x=1"
	require.Equal(t, job.SendError(""), s.SendChanged(t.Context(), p, e).Attempt.Error)
	secrets := must(s.reveal(p, time.Now()))(t)
	key := must(s.keys.current(time.Now()))(t)
	return r.all()[0], secrets[0], ed25519.PublicKey(key.Public)
}

func TestTamperedRequestsHaveNoValidSignature(t *testing.T) {
	t.Parallel()
	for _, tamper := range testbed.Tampers {
		c, secret, public := sendChanged(t, testbed.Effect{Tamper: tamper})
		require.Error(t, verifyStandard(secret, c.body, c.header), tamper)
		_, err := c.verify(public, time.Now())
		require.Error(t, err, tamper)
		require.Equal(t, deliveryID.String(), c.header.Get("Webhook-Id"))
		for _, name := range []string{"Signature", "Signature-Input", "Webhook-Signature", "Content-Digest"} {
			require.NotEmpty(t, c.header.Get(name), "%s: it looks like a delivery", tamper)
		}
	}
}

func TestChangedDeliveriesAreValid(t *testing.T) {
	t.Parallel()
	const padding = 100_000
	for _, e := range []testbed.Effect{{}, {Repeat: 1}, {RotatedSecret: true}, {Padding: padding}} {
		c, secret, public := sendChanged(t, e)
		require.NoError(t, verifyStandard(secret, c.body, c.header), "%+v", e)
		_, err := c.verify(public, time.Now())
		require.NoError(t, err, "%+v", e)
		signatures := strings.Fields(c.header.Get("Webhook-Signature"))
		if e.RotatedSecret {
			require.Len(t, signatures, 2)
			c.header.Set("Webhook-Signature", signatures[0])
			require.Error(t, verifyStandard(secret, c.body, c.header), "the first one is a stranger's")
			continue
		}
		require.Len(t, signatures, 1)
		require.Equal(t, e.Padding > 0, len(c.body) > padding)
	}
}
