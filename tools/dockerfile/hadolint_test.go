package dockerfile

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// rule is one of https://github.com/hadolint/hadolint#rules that BuildKit's checks do not have.
type rule struct {
	id, about string
	broken    func(of *stage, n *parser.Node) bool // by an instruction
}

// stage is what has been seen of one: its last user and working folder, and the instruction before.
type stage struct {
	names         []string // of the stages so far
	user, workdir string
	before        *parser.Node
}

var rules = []rule{
	{"DL3002", "the last user is root", nil}, // asked at the end of a stage
	{"DL3003", "WORKDIR, not cd", runs(`(^|[;&|]\s*)cd\s`)},
	{"DL3004", "no sudo", runs(`\bsudo\b`)},
	{"DL3006", "an image has a tag", func(of *stage, n *parser.Node) bool { return ownImage(of, n) && !strings.Contains(n.Next.Value, ":") }},
	{"DL3007", "the tag is not latest", func(of *stage, n *parser.Node) bool {
		return ownImage(of, n) && strings.HasSuffix(n.Next.Value, ":latest")
	}},
	{"DL3008", "versions of packages", runs(`apt-get\s+(-\S+\s+)*install\s+(-\S+\s+)*[a-z0-9.+-]+(\s|$)`)},
	{"DL3009", "the lists of apt are removed", func(_ *stage, n *parser.Node) bool {
		return command(n, `apt-get update`) && !command(n, `rm -rf /var/lib/apt/lists/\*`)
	}},
	{"DL3014", "apt-get install -y", installs(`\s-\S*y|--yes`)},
	{"DL3015", "apt-get install --no-install-recommends", installs(`--no-install-recommends`)},
	{"DL3020", "COPY, not ADD", func(_ *stage, n *parser.Node) bool {
		return is(n, "add") && !regexp.MustCompile(`://|\.tar`).MatchString(n.Original)
	}},
	{"DL3027", "apt-get, not apt", runs(`\bapt\s+(install|update)`)},
	{"DL3045", "COPY to a relative path needs WORKDIR", func(of *stage, n *parser.Node) bool {
		return is(n, "copy") && of.workdir == "" && !strings.HasPrefix(last(n), "/")
	}},
	{"DL3059", "one RUN, not two", func(of *stage, n *parser.Node) bool {
		return is(n, "run") && is(of.before, "run") && len(n.Flags)+len(of.before.Flags) == 0
	}},
	{"DL4006", "pipefail before a pipe", runs(`[^|]\|[^|]`)},
}

func is(n *parser.Node, instruction string) bool {
	return n != nil && strings.EqualFold(n.Value, instruction)
}

func last(n *parser.Node) (value string) {
	for n = n.Next; n != nil; n = n.Next {
		value = n.Value
	}
	return value
}

func command(n *parser.Node, pattern string) bool {
	return is(n, "run") && regexp.MustCompile(pattern).MatchString(last(n))
}

func runs(pattern string) func(*stage, *parser.Node) bool {
	return func(_ *stage, n *parser.Node) bool { return command(n, pattern) }
}

func installs(with string) func(*stage, *parser.Node) bool {
	return func(_ *stage, n *parser.Node) bool { return command(n, `apt-get.* install`) && !command(n, with) }
}

// ownImage tells whether a stage begins with an image and not with another stage.
func ownImage(of *stage, n *parser.Node) bool {
	return is(n, "from") && n.Next.Value != "scratch" && !slices.Contains(of.names, n.Next.Value)
}

var ignored = regexp.MustCompile(`^hadolint ignore=(\S+)`)

// hadolint gives the rules that instructions break, but for those that the comment before one ignores as hadolint would.
func hadolint(t *testing.T, instructions []*parser.Node) (broken []string) {
	t.Helper()
	of := &stage{}
	found := func(id, about string, n *parser.Node) {
		for _, comment := range n.PrevComment {
			if m := ignored.FindStringSubmatch(comment); m != nil && slices.Contains(strings.Split(m[1], ","), id) {
				return
			}
		}
		t.Logf("line %d: %s: %s", n.StartLine, id, about)
		broken = append(broken, id)
	}
	for i, n := range instructions {
		switch {
		case is(n, "from"):
			of.user, of.workdir = "", ""
		case is(n, "user"):
			of.user = n.Next.Value
		case is(n, "workdir"):
			of.workdir = n.Next.Value
		}
		for _, r := range rules {
			if r.broken != nil && r.broken(of, n) {
				found(r.id, r.about, n)
			}
		}
		if (i+1 == len(instructions) || is(instructions[i+1], "from")) && regexp.MustCompile(`^(root|0)(:|$)`).MatchString(of.user) {
			found(rules[0].id, rules[0].about, n)
		}
		if is(n, "from") {
			of.names = append(of.names, last(n))
		}
		of.before = n
	}
	return broken
}
