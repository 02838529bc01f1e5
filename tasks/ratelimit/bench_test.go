package ratelimit

import (
	"testing"

	"github.com/forgerun/forgerun/tasks/redistest"
)

func BenchmarkAllow(b *testing.B) {
	l := newLimiter(b, redistest.DB(b), Config{PerMinute: maxPerMinute})
	client := redistest.Task().JobID
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !l.Allow(b.Context(), client).OK {
				b.Fail()
			}
		}
	})
}
