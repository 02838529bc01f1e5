package telemetry_test

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
)

func TestHistogramsHaveClassicAndNativeBuckets(t *testing.T) {
	t.Parallel()
	h := telemetry.In(nil).Histogram("wait_seconds", "A histogram.", telemetry.Quick)
	h.Observe(0.02)
	var m dto.Metric
	require.NoError(t, h.Write(&m))
	require.Len(t, m.GetHistogram().GetBucket(), len(telemetry.Quick))
	require.NotEmpty(t, m.GetHistogram().GetPositiveSpan(), "native buckets")
}
