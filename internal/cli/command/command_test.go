package command_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

func sample() (root *cobra.Command, got *[]string) {
	got = &[]string{}
	root = &cobra.Command{Use: "sample", Version: "1.2"}
	url, to := "", 0
	leaf := &cobra.Command{
		Use: "leaf [WORD...]", Short: "Takes words",
		RunE: func(_ *cobra.Command, args []string) error {
			*got = append([]string{url}, args...)
			return map[int]error{0: nil, 1: errors.New("it broke"), 3: command.Code(3), 4: &command.Exit{Code: 4, Err: errors.New("too late")}}[to]
		},
	}
	leaf.Flags().StringVar(&url, "url", "", "`address`")
	leaf.Flags().IntVar(&to, "to", 0, "`number`")
	group := command.Group(&cobra.Command{Use: "group", Short: "Has others"})
	group.AddCommand(&cobra.Command{Use: "inner ONE", Args: command.Exactly(1), RunE: func(_ *cobra.Command, args []string) error {
		*got = args
		return nil
	}})
	root.AddCommand(leaf, group)
	return root, got
}

func TestExecute(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		code     int
		sentence string
		got      []string // arguments that the command received; nil if it did not run
	}{
		"flags":             {[]string{"leaf", "--url", "a", "--to=0", "b"}, 0, "", []string{"a", "b"}},
		"after two dashes":  {[]string{"leaf", "--", "-url", "help"}, 0, "", []string{"", "-url", "help"}},
		"failure":           {[]string{"leaf", "--to", "1"}, 1, "it broke", []string{""}},
		"code alone":        {[]string{"leaf", "--to", "3"}, 3, "", []string{""}},
		"code with error":   {[]string{"leaf", "--to", "4"}, 4, "too late", []string{""}},
		"unknown command":   {[]string{"laef"}, 2, `there is no command "sample laef": did you mean leaf?`, nil},
		"far from all":      {[]string{"zzzzzz"}, 2, `there is no command "sample zzzzzz" (sample --help)`, nil},
		"unknown inner":     {[]string{"group", "iner"}, 2, `did you mean inner? (sample group --help)`, nil},
		"unknown flag":      {[]string{"leaf", "--ulr", "x"}, 2, "unknown flag: --ulr (sample leaf --help)", nil},
		"missing":           {[]string{"group", "inner"}, 2, "an argument is missing; usage: sample group inner ONE", nil},
		"too many":          {[]string{"group", "inner", "a", "b"}, 2, `does not know "b"`, nil},
		"unknown topic":     {[]string{"help", "leav"}, 2, "did you mean leaf?", nil},
		"help of a command": {[]string{"help", "group", "inner"}, 0, "", nil},
		"help as a word":    {[]string{"group", "inner", "help"}, 0, "", nil},
		"version":           {[]string{"--version"}, 0, "", nil},
		"nothing":           {nil, 2, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, got := sample()
			var stdout, stderr bytes.Buffer
			code, err := command.Execute(context.Background(), root, "", c.args, &stdout, &stderr)
			require.Equal(t, c.code, code, "%v", err)
			if c.sentence == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.sentence)
			}
			require.Equal(t, c.got == nil, len(*got) == 0)
			if c.got != nil {
				require.Equal(t, c.got, *got)
			}
		})
	}
}
