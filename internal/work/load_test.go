package work

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestCPUBurstWaitsForATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{})
		require.Equal(t, max(1, runtime.GOMAXPROCS(0)/2), cap(r.turns), "half of the CPUs stay free")
		for range cap(r.turns) {
			r.turns <- struct{}{}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		run := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := r.Run(ctx, define(t, job.CPUBurst), 1, job.Observer{})
				done <- err
			}()
			return done
		}
		patient, canceled := run(t.Context()), run(ctx)
		synctest.Wait()
		require.Empty(t, patient)
		require.Empty(t, canceled)
		cancel(errStopped)
		require.Equal(t, errStopped, <-canceled)
		<-r.turns
		require.NoError(t, <-patient)
	})
}

func TestMemorySpikeGrowsToItsBoundAndGivesMemoryBack(t *testing.T) {
	t.Parallel()
	d := define(t, job.MemorySpike)
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{TimeScale: 1})
		var held []int
		_, err := r.Run(t.Context(), d, 1, job.Observer{Progress: func(job.Progress) { held = append(held, len(r.memory)) }})
		require.NoError(t, err)
		require.Equal(t, []int{0, 7, 14, 21, 28, 35, 42, 49, 56, 63, 64}, held, "MiB held at each report")
		require.Empty(t, r.memory)
	})
	for name, end := range map[string]func(cancel func(error)){
		"a cancel": func(cancel func(error)) { cancel(errStopped) }, "a panic": func(func(error)) { panic("boom") },
	} {
		r := New(Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Run(ctx, d, 1, job.Observer{Progress: func(p job.Progress) {
				if p.StepsCompleted == 1 {
					require.NotEmpty(t, r.memory)
					end(cancel)
				}
			}})
		}()
		require.Empty(t, r.memory, "after %s", name)
	}
}

func TestFileIsWritten(t *testing.T) {
	t.Parallel()
	f := &tempFile{dir: t.TempDir()}
	content := func() []byte {
		for n := range fileBlocks {
			require.NoError(t, f.write(fileBlocks+n))
		}
		all := must(io.ReadAll(io.NewSectionReader(f.file, 0, 1<<30)))(t)
		require.Len(t, all, 4<<20, "the size does not grow")
		require.Equal(t, f.written, all[len(all)-blockSize:])
		require.NotContains(t, string(all), "\x00")
		return all
	}
	require.NotEqual(t, content(), content(), "each pass writes other data")
	require.NoError(t, f.file.Close())
	require.ErrorIs(t, f.write(0), os.ErrClosed)
	f.release()
	requireEmptyDir(t, f.dir)

	zero, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, zero.Close()) }()
	wrong := &tempFile{file: zero, written: make([]byte, blockSize), read: make([]byte, blockSize)}
	require.ErrorIs(t, wrong.write(0), errReadBack)

	file, err := os.CreateTemp(f.dir, "forgerun-io-*") // a file that still has a name, as on Windows
	require.NoError(t, err)
	(&tempFile{dir: f.dir, file: file}).release()
	requireEmptyDir(t, f.dir)
}

func openFiles(t *testing.T, dir string) int {
	t.Helper()
	links := must(filepath.Glob("/proc/self/fd/*"))(t)
	count := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir) {
			count++
		}
	}
	return count
}

func requireEmptyDir(t *testing.T, dir string) {
	t.Helper()
	entries := must(os.ReadDir(dir))(t)
	require.Empty(t, entries)
}

func TestIOHeavyLeavesNoFileBehind(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("counts open files in /proc")
	}
	d := define(t, job.IOHeavy)
	for name, atHalf := range map[string]func(cancel func(error)){
		"success": func(func(error)) {},
		"cancel":  func(cancel func(error)) { cancel(errStopped) },
		"panic":   func(func(error)) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			openAtHalf := 0
			func() {
				defer func() { _ = recover() }()
				_, _ = New(Config{TempDir: dir}).Run(ctx, d, 1, job.Observer{Progress: func(p job.Progress) {
					if p.StepsCompleted == 1 {
						openAtHalf = openFiles(t, dir)
						atHalf(cancel)
					}
				}})
			}()
			require.Equal(t, 1, openAtHalf)
			require.Zero(t, openFiles(t, dir))
			requireEmptyDir(t, dir)
		})
	}
}
