package apptest

import (
	"github.com/forgerun/forgerun/job"
)

func (SilentQueue) Publish(job.Notification) {}

func (SilentQueue) Enqueue(job.Task) {}
