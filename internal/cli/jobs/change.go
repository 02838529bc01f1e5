package jobs

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

func cancelCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB...", Short: "Cancel jobs; those that have ended stay as they are", Args: command.AtLeast(1),
		RunE: func(c *cobra.Command, ids []string) error {
			return each(c.Context(), s, ids, func(ctx context.Context, api *client.Client, id string) (any, error) {
				changed, err := api.Cancel(ctx, id)
				if err != nil {
					return nil, err
				}
				if !changed.Changed {
					s.Notef("%s stays as it is: %s", id, changed.State)
				}
				return api.Job(ctx, id)
			})
		},
	}
}

func retryCommand(s *session.Session) *cobra.Command {
	waiting := false
	var timeout time.Duration
	c := &cobra.Command{
		Use: "retry JOB...", Short: "Run the next attempt of failed jobs", Args: command.AtLeast(1),
		RunE: func(c *cobra.Command, ids []string) error {
			retry := func(ctx context.Context, api *client.Client, id string) (any, error) {
				changed, err := api.Retry(ctx, id)
				if err != nil {
					return nil, err
				}
				if !changed.Changed {
					s.Notef("%s stays as it is: %s", id, changed.State)
				}
				return api.Job(ctx, id)
			}
			if !waiting {
				return each(c.Context(), s, ids, retry)
			}
			api, err := s.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if _, err := retry(c.Context(), api, id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return wait(c.Context(), s, ids, timeout)
		},
	}
	c.Flags().BoolVarP(&waiting, "wait", "w", false, "wait for their end, and exit as they ended")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

func deleteCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete JOB...", Short: "Delete jobs that have ended, with all that belongs to them", Args: command.AtLeast(1),
		RunE: func(c *cobra.Command, ids []string) error {
			api, err := s.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := api.Delete(c.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}

func resultCommand(s *session.Session) *cobra.Command {
	file := ""
	c := &cobra.Command{
		Use: "result JOB", Short: "Write the result of a job, as the bytes that they are", Args: command.Exactly(1),
		Long: "Writes the result of a job, checked against its digest, to standard output or a file. A terminal is shown text only.",
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.Client()
			if err != nil {
				return err
			}
			result, err := api.Result(c.Context(), args[0])
			if err != nil {
				return err
			}
			if file != "" {
				return os.WriteFile(file, result.Data, 0o644)
			}
			if term.IsTerminal(s.Stdout) && term.Printable(string(result.Data)) != string(result.Data) {
				return command.Usagef("the result is %s, not text: write it to a file with --to FILE", result.ContentType)
			}
			_, err = s.Stdout.Write(result.Data)
			return err
		},
	}
	c.Flags().StringVar(&file, "to", "", "`file` to write it to")
	return c
}
