package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// topics are what "forgerun help TOPIC" explains beside the commands.
func topics() []*cobra.Command {
	all := []*cobra.Command{
		{Use: "access", Short: "How the address and the key are found", Long: `
The commands for clients need the address of the service and an API key, those for operators the address of
an admin listener and an operator's token. They are looked for in this order, and the first that is found counts:

  1. flags              --url, --key, --admin-url, --admin-token
  2. a named profile    --profile NAME
  3. the environment    FORGERUN_URL, FORGERUN_API_KEY, FORGERUN_ADMIN_URL, FORGERUN_ADMIN_TOKEN
  4. a profile          FORGERUN_PROFILE, or the current one of the file
  5. forgerun dev       one that runs in this folder (dev.json in FORGERUN_DATA_DIR, default .forgerun)

A key is sent only to the address that it was found with, or, if it was given alone as a flag or in the environment, to the
address that counts. Arguments are visible to other users in ps: prefer the environment or a profile for secrets.`},
		{Use: "profiles-file", Short: "Where profiles are kept", Long: `
Profiles are kept in FORGERUN_PROFILES, or in forgerun/profiles.yaml below XDG_CONFIG_HOME or ~/.config. The file has mode 0600;
one that others can read is refused.

  current: staging
  profiles:
    staging:
      url: https://staging.example.com
      key: frk_...
      admin_url: https://admin.staging.example.com
      admin_token: ...

'forgerun profiles set' writes it, 'forgerun profiles list' shows it without the secrets.`},
		{Use: "output", Short: "The forms of output", Long: `
--output (-o) takes:

  table            aligned columns (the default)
  wide             more columns, and nothing cut off
  json             one object, or an array of a list; of a stream one object on each line
  yaml             the same as YAML; of a stream one document each
  name             the id of each thing on a line
  go-template=...  a template of Go's text/template, once for each thing, such as '{{.job_id}} {{.state}}';
                   {{json .result}} writes a member as JSON

Members have the names of the API. Colours are used in a terminal only, and not if NO_COLOR is set. What is told beside
the output goes to standard error.`},
		{Use: "exit-codes", Short: "What exit codes mean", Long: `
  0    it succeeded; of commands that wait: all jobs succeeded
  1    it failed; of commands that wait: a job failed
  2    wrong usage or configuration: nothing was done
  3    a job was canceled (jobs wait, watch, submit --wait, retry --wait; batch submit --wait)
  4    the time of --timeout was over before the end
  130  interrupted by Ctrl-C`},
	}
	for _, topic := range all {
		topic.Long = strings.TrimPrefix(topic.Long, "\n")
	}
	return all
}
