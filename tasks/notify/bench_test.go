package notify

import (
	"testing"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// BenchmarkPublish is what a process does for each event or step of progress,
// of 1,000 jobs of 10 clients, until Redis has it.
func BenchmarkPublish(b *testing.B) {
	for name, progress := range map[string]*job.Progress{"event": nil, "progress": {Percentage: 50, Phase: "RENDERING"}} {
		b.Run(name, func(b *testing.B) {
			r := redistest.DB(b)
			p := startPublisher(b, r)
			clients, jobs := redistest.Tasks(10), redistest.Tasks(1000)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				for p.events.Len() == publishBuffer {
					time.Sleep(10 * time.Microsecond)
				}
				p.Publish(job.Notification{ClientID: clients[i%10].JobID, JobID: jobs[i%1000].JobID, Attempt: 1, Progress: progress})
			}
			for notificationsOf(r, redisconn.ResultOK) < float64(b.N) {
				time.Sleep(100 * time.Microsecond)
			}
			perSecond(b)
		})
	}
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(0, "ns/op")
}
