package trial

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Summarize puts the report together, around the numbers.
func (t *Trial) Summarize(a report.Run, verdict *judge.Verdict) report.Run {
	s := t.o.Scenario
	a.Scenario, a.Description, a.Seed, a.Command, a.Text = s.Name, s.Description, s.Seed, t.o.Command, t.o.Text
	a.Verdict, a.Notes = verdict, t.notes
	a.Expectations = expectations(s.Expect, a.Numbers)
	if t.unhealed != nil {
		a.Expectations = append(a.Expectations, report.Expectation{
			Name: "recovery", Want: "every process ready within " + patience.String() + " of the last fault", Got: t.unhealed.Error(),
		})
	}
	a.Machine = []report.Setting{
		{Name: "System", Value: runtime.GOOS + "/" + runtime.GOARCH},
		{Name: "Processors", Value: strconv.Itoa(runtime.NumCPU())},
		{Name: "Program", Value: t.o.Program},
	}
	a.Service = []report.Setting{{Name: "Service", Value: t.url}}
	if t.stack != nil {
		a.Service = append(a.Service,
			report.Setting{Name: "Workers", Value: s.Service.Workers},
			report.Setting{Name: "Jobs at once in each", Value: strconv.Itoa(s.Service.Concurrency)},
			report.Setting{Name: "Lease", Value: t.o.Lease.String()},
		)
	}
	if t.o.TimeScale != nil {
		a.Service = append(a.Service, report.Setting{Name: "Time scale", Value: strconv.FormatFloat(*t.o.TimeScale, 'g', -1, 64)})
	}
	if s.Chaos != "" {
		a.Service = append(a.Service, report.Setting{Name: "Faults", Value: s.Chaos})
	}
	return a
}

// expectations holds the numbers against what the scenario wants of them.
func expectations(e scenario.Expect, n report.Numbers) []report.Expectation {
	var list []report.Expectation
	if e.Refused != nil {
		want, share := float64(*e.Refused), refusedShare(n.Answers)
		list = append(list, report.Expectation{
			Name: "refused submissions", Want: fmt.Sprintf("at most %.3g %%", 100*want),
			Got: fmt.Sprintf("%.3g %%", 100*share), OK: share <= want,
		})
	}
	latency := func(name string, want time.Duration, got report.Latency) {
		if want == 0 {
			return
		}
		x := report.Expectation{Name: name, Want: "at most " + want.String(), Got: "nothing to measure"}
		if got.Count > 0 {
			x.Got, x.OK = got.P99.Round(time.Microsecond).String(), got.P99 <= want
		}
		list = append(list, x)
	}
	latency("p99 of submissions", e.SubmitP99, n.Submit)
	latency("p99 of jobs' ends", e.FinishP99, n.Finish)
	return list
}

func refusedShare(answers []report.Count) float64 {
	refused, all := int64(0), int64(0)
	for _, c := range answers {
		all += c.N
		if c.Name == report.Refused {
			refused += c.N
		}
	}
	return float64(refused) / float64(max(all, 1))
}

// Write writes the report and says where it is. What the judge went by is kept
// where something was wrong.
func (t *Trial) Write(a report.Run) error {
	files := []struct {
		name  string
		write func(io.Writer, report.Run) error
	}{{"report.html", report.WriteHTML}, {"report.json", report.WriteJSON}, {"junit.xml", report.WriteJUnit}}
	for _, f := range files {
		if err := writeFile(filepath.Join(t.o.Out, f.name), func(w io.Writer) error { return f.write(w, a) }); err != nil {
			return err
		}
	}
	if err := report.WriteSummary(t.o.Stdout, a); err != nil {
		return err
	}
	fmt.Fprintf(t.o.Stdout, "\nReport: %s\n", filepath.Join(t.o.Out, "report.html"))
	if t.o.Keep || a.Outcome() == report.Violated {
		fmt.Fprintf(t.o.Stdout, "History and logs: %s\n", t.o.Out)
		return t.keepLogs()
	}
	return os.RemoveAll(filepath.Join(t.o.Out, historyFolder))
}

const historyFolder = "history"

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// keepLogs copies the logs of the processes to the report's folder.
func (t *Trial) keepLogs() error {
	if t.dir == "" {
		return nil
	}
	return os.CopyFS(filepath.Join(t.o.Out, "logs"), os.DirFS(filepath.Join(t.dir, "logs")))
}
