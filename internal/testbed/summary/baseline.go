package summary

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/internal/yamlfile"
	"github.com/forgerun/forgerun/verdict"
)

// Baseline lists the rules that a client is known to break. A listed rule that is broken does not make the verdict fail. A listed rule
// that is no longer broken makes the verdict fail until the entry is deleted.
type Baseline struct {
	Path    string
	entries []known
}

// known is an entry of a baseline. Profile names the faults of the run: a profile, a file of faults, or "none".
type known struct {
	Profile string `yaml:"profile"`
	Test    string `yaml:"test"` // label of the session; empty: the session without a label
	Rule    string `yaml:"rule"`
	line    int
}

func (k known) String() string {
	where := "under " + k.Profile
	if k.Test != "" {
		where += " in " + k.Test
	}
	return k.Rule + " " + where
}

// ReadBaseline reads a file that UpdateBaseline has written. If mayBeMissing is true, a missing file is an empty baseline.
func ReadBaseline(path string, mayBeMissing bool) (*Baseline, error) {
	b := &Baseline{Path: path}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && mayBeMissing:
		return b, nil
	case err != nil:
		return nil, err
	}
	var file struct {
		Known []yaml.Node `yaml:"known"`
	}
	if err := yamlfile.Decode(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, node := range file.Known {
		entry, err := readKnown(&node)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, node.Line, err)
		}
		b.entries = append(b.entries, entry)
	}
	return b, nil
}

func readKnown(node *yaml.Node) (k known, err error) {
	if err := node.Decode(&k); err != nil {
		return k, err
	}
	for i := 0; i < len(node.Content); i += 2 {
		if name := node.Content[i].Value; !slices.Contains([]string{"profile", "test", "rule"}, name) {
			return k, fmt.Errorf("unknown member %q; an entry has profile, test and rule", name)
		}
	}
	if k.Rule != commandRule && !slices.Contains(verdict.IDs(), k.Rule) {
		return k, fmt.Errorf("unknown rule %q; use one of %s, or %s for a command that fails",
			k.Rule, strings.Join(verdict.IDs(), ", "), commandRule)
	}
	if k.Profile == "" {
		return k, errors.New("profile is missing")
	}
	k.line = node.Line
	return k, nil
}

// An entry with commandRule instead of a rule allows the command to fail.
const commandRule = "command"

// Run is one run of the command.
type Run struct {
	Disturbed string // name of the profile, or of the file of faults, or "none"
	Failed    bool
	MayFail   bool // the profile refuses some requests permanently, so the command may fail
}

// AddRun adds a run of the command. Call it after adding the run's sessions.
func (s *Summary) AddRun(disturbed string, failed, mayFail bool) {
	s.runs = append(s.runs, Run{cmp.Or(disturbed, "none"), failed, mayFail})
}

// CommandFailed reports whether the command failed in any run. It ignores failures that the run's profile or the baseline allows.
func (s *Summary) CommandFailed() bool {
	return slices.ContainsFunc(s.runs, func(r Run) bool { return r.Failed && !r.MayFail && !s.Baseline.has(r.Disturbed, "", commandRule) })
}

func (b *Baseline) has(disturbed, label, rule string) bool {
	return b != nil && slices.ContainsFunc(b.entries, func(k known) bool {
		return k.Profile == disturbed && k.Test == label && k.Rule == rule
	})
}

// outcomes returns whether any matching session or run broke the rule of entry k (`broken`), and whether any obeyed it (`kept`).
func (s *Summary) outcomes(k known) (broken, kept bool) {
	if k.Rule == commandRule {
		for _, r := range s.runs {
			if r.Disturbed == k.Profile {
				broken, kept = broken || r.Failed, kept || !r.Failed
			}
		}
		return broken, kept
	}
	for _, n := range s.Sessions {
		if n.Disturbed != k.Profile || n.Label != k.Test {
			continue
		}
		for _, r := range n.Results {
			if r.Rule == k.Rule {
				broken, kept = broken || r.Status.Broken(), kept || r.Status == verdict.OK
			}
		}
	}
	return broken, kept
}

// Stale returns a message for each stale baseline entry. An entry is stale if at least one session obeyed the rule and none broke it.
func (s *Summary) Stale() (stale []string) {
	if s.Baseline == nil {
		return nil
	}
	for _, k := range s.Baseline.entries {
		if broken, kept := s.outcomes(k); kept && !broken {
			stale = append(stale, fmt.Sprintf("%s:%d: %s is no longer broken: delete this line.", s.Baseline.Path, k.line, k))
		}
	}
	return stale
}

// UpdateBaseline writes a new baseline to the file, and judges the sessions by it. The new baseline contains the broken "must" rules and
// failures of the command. Old entries stay if the sessions did not test their rule.
func (s *Summary) UpdateBaseline() error {
	b := &Baseline{Path: s.Baseline.Path}
	for _, k := range s.Baseline.entries {
		if broken, kept := s.outcomes(k); !broken && !kept {
			b.entries = append(b.entries, k)
		}
	}
	add := func(disturbed, label, rule string) {
		if !b.has(disturbed, label, rule) {
			b.entries = append(b.entries, known{Profile: disturbed, Test: label, Rule: rule})
		}
	}
	for _, n := range s.Sessions {
		for _, r := range n.Results {
			if r.Status.Broken() && r.Level == verdict.Must {
				add(n.Disturbed, n.Label, r.Rule)
			}
		}
	}
	for _, r := range s.runs {
		if r.Failed && !r.MayFail {
			add(r.Disturbed, "", commandRule)
		}
	}
	slices.SortFunc(b.entries, func(x, y known) int {
		return cmp.Or(cmp.Compare(x.Profile, y.Profile), cmp.Compare(x.Test, y.Test), cmp.Compare(x.Rule, y.Rule))
	})
	if err := os.WriteFile(b.Path, b.text(), 0o644); err != nil { // not private, because users commit the file
		return err
	}
	s.Baseline = b
	for i := range s.Sessions {
		s.judge(&s.Sessions[i])
	}
	return nil
}

// text returns the file's content with one entry per line, so that a user can delete a stale entry by deleting its line.
func (b *Baseline) text() []byte {
	text := bytes.NewBufferString("# Rules that this client is known to break (forgerun verdict --baseline).\n" +
		"# When the client keeps a rule again, delete its line.\nknown:")
	if len(b.entries) == 0 {
		text.WriteString(" []\n")
		return text.Bytes()
	}
	text.WriteByte('\n')
	for _, k := range b.entries {
		fmt.Fprintf(text, "  - {profile: %s, ", quoted(k.Profile))
		if k.Test != "" {
			fmt.Fprintf(text, "test: %s, ", quoted(k.Test))
		}
		fmt.Fprintf(text, "rule: %s}\n", k.Rule)
	}
	return text.Bytes()
}

// quoted returns text in double quotes, as a YAML scalar on one line.
func quoted(text string) string { return fmt.Sprintf("%q", text) }
