package term_test

import (
	"bufio"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/term"
)

func TestReadPasswordShowsNothing(t *testing.T) {
	t.Parallel()
	keyboard, terminal, err := pty.Open()
	require.NoError(t, err)
	defer keyboard.Close()
	defer terminal.Close()
	answer, err := term.ReadPassword(terminal, func() {
		_, err := keyboard.WriteString("secret\n")
		require.NoError(t, err)
	})
	require.NoError(t, err)
	require.Equal(t, "secret", answer)
	_, err = terminal.WriteString("end\n")
	require.NoError(t, err)
	shown, err := bufio.NewReader(keyboard).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "end\r\n", shown, "the terminal shows input again")
}
