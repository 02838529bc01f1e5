package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redistest"
)

const someID = "0190f3a4-7d6e-7c55-8a2b-3d1f5e6a7b8c"

func TestPayload(t *testing.T) {
	t.Parallel()
	id := redistest.Must(job.ParseID(someID))(t)
	want := job.Task{JobID: id, Attempt: 12, Dispatch: 3, WorkKind: "SUCCESS_FAST", RunAt: time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)}
	task := want
	task.ClientID, task.Reason, task.TraceParent = id, job.TimedOut, "x"
	require.JSONEq(t, `{"job":"`+someID+`","attempt":12,"dispatch":3,"run_at":"2030-01-02T03:04:05.000006Z","kind":"SUCCESS_FAST",
		"client":"`+someID+`","reason":"`+string(job.TimedOut)+`"}`, string(jobHint(task).payload))
	require.Equal(t, want, redistest.Must(ParseTask(jobHint(task).payload))(t))
	require.Equal(t, job.Task{JobID: id, Attempt: 1}, redistest.Must(ParseTask([]byte(`{"job":"`+someID+`","attempt":1,"more":[]}`)))(t))

	delivery := job.DeliveryTask{ID: id, ClientID: redistest.Task().JobID, Endpoint: redistest.Task().JobID}
	require.JSONEq(t, `{"delivery":"`+someID+`","client":"`+delivery.ClientID.String()+`","endpoint":"`+delivery.Endpoint.String()+`"}`,
		string(deliveryHint(delivery).payload))
	require.Equal(t, delivery, redistest.Must(ParseDelivery(deliveryHint(delivery).payload))(t))
}

func TestPayloadsAreReadStrictly(t *testing.T) {
	t.Parallel()
	const job = `{"job":"` + someID + `","attempt":`
	for _, payload := range []string{
		"", "{", "{}", "null", "[]", someID + ":1:0", `{"job_id":"` + someID + `","attempt":1}`, `{"job":"x","attempt":1}`,
		`{"job":"00000000-0000-0000-0000-000000000000","attempt":1}`,
		`{"job":"` + someID + `"}`, job + `"1"}`, job + `1} x`, job + `1,"dispatch":-1}`, job + `0}`, job + `99999999999999999999}`,
		job + `1,"run_at":"yesterday"}`,
	} {
		_, err := ParseTask([]byte(payload))
		require.ErrorIs(t, err, ErrBadPayload, payload)
	}
	const delivery, client, endpoint = `"delivery":"` + someID + `"`, `"client":"` + someID + `"`, `"endpoint":"` + someID + `"`
	redistest.Must(ParseDelivery([]byte("{" + delivery + "," + client + "," + endpoint + "}")))(t)
	for _, payload := range []string{
		"", "null", "[]", someID, "{" + delivery + "," + client + "}", "{" + delivery + "," + endpoint + "}", "{" + client + "," + endpoint + "}",
		"{" + delivery + "," + client + `,"endpoint":1}`, "{" + delivery + "," + client + `,"endpoint":"00000000-0000-0000-0000-000000000000"}`,
	} {
		_, err := ParseDelivery([]byte(payload))
		require.ErrorIs(t, err, ErrBadPayload, payload)
	}
}
