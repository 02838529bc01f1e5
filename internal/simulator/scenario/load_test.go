package scenario_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func hostile() []string {
	const full = 1<<16 - 10
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}
	return []string{
		bomb, strings.Repeat("# much\n", 1<<18), strings.Repeat("[", full), strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		strings.Repeat("a: 1\n", full/5), strings.Repeat("a", full-10) + ": 1",
		strings.Repeat(strings.Repeat("a", full/2-10)+": 1\n", 2), "duration: " + strings.Repeat("9s", full/2-10),
		strings.Repeat("---\n", full/4),
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	s, err := scenario.Load("steady")
	require.NoError(t, err)
	require.Equal(t, "steady", s.Name)

	_, err = scenario.Load("no/such/file.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = scenario.Load(t.TempDir())
	require.ErrorContains(t, err, "reading the scenario")
	_, err = scenario.Load("../steady")
	require.Error(t, err)

	path := filepath.Join(t.TempDir(), "own.yaml")
	require.NoError(t, os.WriteFile(path, []byte(frame("seed: 5")), 0o600))
	s, err = scenario.Load(path)
	require.NoError(t, err)
	require.Equal(t, "own", s.Name)
	require.NoError(t, os.WriteFile(path, []byte(frame("seed: x")), 0o600))
	_, err = scenario.Load(path)
	require.EqualError(t, err, path+`:1:7: seed must be a whole number from 0 to 18446744073709551615, not "x"`)
	require.NoError(t, os.WriteFile(path, make([]byte, 2<<20), 0o600))
	_, err = scenario.Load(path)
	require.EqualError(t, err, path+`: a scenario has at most 65536 bytes`)
}

func FuzzParse(f *testing.F) {
	for _, name := range scenario.Names() {
		text, err := scenario.Text(name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(mixed))
	for _, text := range hostile() {
		f.Add([]byte(text))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("--- \n...\n---"))
	f.Add([]byte(frame("service: {env: {FORGERUN_MAX_RETRIES: 1}}\nchaos: kill=1s")))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenario.Parse("fuzz.yaml", text)
		if err == nil {
			p := s.Plan()
			last := time.Duration(0)
			for range 10 {
				i, ok := p.Next()
				require.True(t, !ok || i.At >= last && i.Tickets > 0 && i.Tenant < s.Tenants)
				last = i.At
			}
			return
		}
		require.Regexp(t, `^fuzz\.yaml:.`, err.Error())
		for line := range strings.Lines(err.Error()) {
			require.Less(t, len(line), 2000)
		}
	})
}
