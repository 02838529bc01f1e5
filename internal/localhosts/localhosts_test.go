package localhosts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnly(t *testing.T) {
	t.Parallel()
	allowed := Only("https://Forgerun.Example.com:8443/base")
	for _, host := range []string{
		"localhost", "localhost:8080", "LOCALHOST", "localhost.", "app.localhost:1", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9",
		"[::1]", "[::1]:8080", "::1", "[::ffff:127.0.0.1]", "forgerun.example.com", "forgerun.example.com:8080",
		"a.b-c.localhost:8080", "1.localhost.", strings.Repeat("a", 63) + ".localhost",
	} {
		require.True(t, allowed(host), host)
	}
	for _, host := range []string{
		"rebind.example", "rebind.example:8080", "localhost.rebind.example", "notlocalhost", "127.0.0.1.rebind.example", "10.0.0.1",
		"0.0.0.0", "[::]:80", "192.0.2.1:80", "[fe80::1%25eth0]:80", "x.forgerun.example.com", "forgerun.example.com@rebind.example", " ",
		"rebind.example#localhost", "rebind.example:80:localhost", "", ".", ":8080",
		".localhost", "..localhost", "a..localhost", "-a.localhost", "a-.localhost",
		"rebind.example%00.localhost", "rebind.example\x00.localhost",
		"rebind.example/.localhost", "rebind.example?.localhost", "a b.localhost", "a@localhost", "localhost:x", "localhost:", "localhost:99999",
		"[localhost]", "[127.0.0.1]", "[::1", "::1]", "::1%eth0", "[::1%25eth0]:80", "localhost..",
		strings.Repeat("a", 64) + ".localhost", strings.Repeat("a.", 130) + "localhost",
	} {
		require.False(t, allowed(host), host)
	}
	require.False(t, Only("")("rebind.example"))
	require.False(t, Only("")(""))
}
