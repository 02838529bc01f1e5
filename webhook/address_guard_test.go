package webhook

import (
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

var forbidden = map[string][]string{
	"this network":           {"0.0.0.0", "0.1.2.3", "0.255.255.255"},
	"private":                {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"},
	"shared":                 {"100.64.0.1", "100.100.100.200", "100.127.255.255"},
	"loopback":               {"127.0.0.1", "127.1.2.3", "127.255.255.255", "::1"},
	"link-local":             {"169.254.0.1", "169.254.169.254", "169.254.170.2", "fe80::1", "febf::1"},
	"protocol assignments":   {"192.0.0.1", "192.0.0.192", "192.88.99.1", "192.31.196.1", "192.52.193.1", "192.175.48.1"},
	"documentation":          {"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"},
	"benchmarking":           {"198.18.0.1", "198.19.255.255", "2001:2::1"},
	"multicast":              {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"},
	"reserved and broadcast": {"240.0.0.1", "255.255.255.254", "255.255.255.255"},
	"platform":               {"168.63.129.16"},
	"unspecified":            {"::"},
	"IPv4-mapped":            {"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8"},
	"IPv4-compatible":        {"::127.0.0.1", "::8.8.8.8"},
	"IPv4-translated":        {"::ffff:0:127.0.0.1"},
	"NAT64":                  {"64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::127.0.0.1", "64:ff9b:1:ffff::1"},
	"6to4":                   {"2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1"},
	"Teredo":                 {"2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"},
	"ORCHID":                 {"2001:10::1", "2001:20::1"},
	"unique local":           {"fc00::1", "fd00::1", "fd00:ec2::254", "fdff:ffff::1"},
	"site-local":             {"fec0::1", "feff::1"},
	"discard and dummy":      {"100::1", "100:0:0:1::1"},
	"segment routing":        {"5f00::1"},
	"unassigned":             {"4000::1", "8000::1", "e000::1", "1::1"},
}

var publicAddresses = []string{
	"1.1.1.1", "8.8.8.8", "93.184.216.34", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
	"128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255",
	"168.63.129.15", "2606:4700:4700::1111", "2a00:1450:4001:801::200e", "2400:cb00::1",
}

func TestGuardAtDialTime(t *testing.T) {
	t.Parallel()
	public, private := NewGuard(false), NewGuard(true)
	dial := func(g *Guard, text string, port uint16) error {
		addr := netip.MustParseAddr(text)
		network := map[bool]string{true: "tcp4", false: "tcp6"}[addr.Is4()]
		return g.control(network, netip.AddrPortFrom(addr, port).String(), nil)
	}
	for name, addresses := range forbidden {
		for _, text := range addresses {
			for _, port := range []uint16{80, 443, 8080} {
				require.ErrorIs(t, dial(public, text, port), errForbidden, "%s: %s", name, text)
			}
			require.NoError(t, dial(private, text, 80), text)
		}
	}
	for _, text := range publicAddresses {
		require.NoError(t, dial(public, text, 80), text)
		require.NoError(t, dial(public, text, 31234), "any port: %s", text)
	}
	for _, network := range []string{"unix", "udp4", "ip4", "tcp"} {
		require.Error(t, public.control(network, "8.8.8.8:80", nil), network)
	}
	for _, address := range []string{"", "8.8.8.8", "example.com:80", "/run/socket", "[fe80::1%lo]:80"} {
		require.Error(t, public.control("tcp4", address, nil), address)
	}
}

func TestGuardRefusesPortsOfOtherServices(t *testing.T) {
	t.Parallel()
	for _, g := range []*Guard{NewGuard(false), NewGuard(true)} {
		for _, port := range []string{"22", "25", "53", "110", "143", "465", "587", "993", "5432", "6000", "6379", "6667", "9200", "11211"} {
			require.Equal(t, "Port "+port+" belongs to a service other than HTTP; no requests are sent there.",
				g.Check("http://example.com:"+port+"/"))
			require.NotEmpty(t, g.Check("https://[2606:4700:4700::1111]:0"+port+"/"))
			require.ErrorIs(t, g.control("tcp4", "8.8.8.8:"+port, nil), errForbidden)
		}
		for _, port := range []string{"", ":80", ":443", ":8080", ":8443", ":3000", ":31234", ":65535"} {
			require.Empty(t, g.Check("http://example.com"+port+"/"))
		}
	}
}

func TestGuardAtRegistration(t *testing.T) {
	t.Parallel()
	public, private := NewGuard(false), NewGuard(true)
	for _, addresses := range forbidden {
		for _, text := range addresses {
			target := "https://" + net.JoinHostPort(text, "8443") + "/path"
			require.Equal(t, notPublic, public.Check(target), target)
			require.Empty(t, private.Check(target), target)
		}
	}
	for _, text := range publicAddresses {
		require.Empty(t, public.Check("http://"+net.JoinHostPort(text, "80")), text)
	}
	for _, host := range []string{"localhost", "LOCALHOST", "a.localhost", "LocalHost:80"} {
		require.Equal(t, notPublic, public.Check("http://"+host+"/"), host)
		require.Empty(t, private.Check("http://"+host+"/"), host)
	}
	for _, host := range []string{
		"example.com", "Example.COM:8080", "a", "a_b.example", "xn--bcher-kva.example", "3com.com", "1.2.3.4.example",
		"0x7f.example", "0xg", "localhost.example", "notlocalhost", "10.example:8081", "a-.b",
	} {
		require.Empty(t, public.Check("https://"+host+"/"), host)
		require.Empty(t, private.Check("https://"+host), host)
	}
}

func TestGuardRefusesUnclearSpellings(t *testing.T) {
	t.Parallel()
	hosts := append(ipv4Spellings(), trickyHosts...)
	require.Greater(t, len(hosts), 100)
	for _, host := range hosts {
		for _, g := range []*Guard{NewGuard(false), NewGuard(true)} {
			wrong := g.Check("http://" + host + ":80/")
			require.Contains(t, []string{unclear, notAURL}, wrong, host)
		}
	}
	for _, target := range trickyURLs("80") {
		require.NotEmpty(t, NewGuard(false).Check(target), target)
	}
	for _, target := range []string{"", "example.com", "ftp://example.com/", "http://", "http:///path", "http://user@example.com/",
		"http://%zz/"} {
		require.Equal(t, notAURL, NewGuard(true).Check(target), target)
	}
}

// trickyHosts are host forms that no program should accept, although some do.
var trickyHosts = []string{
	"127.0.0.1.", "127.0.0.1..", ".127.0.0.1", "127..0.0.1", "127.0..1", "localhost.", "localhost..", ".localhost", "a..localhost",
	"example.com.", "example..com", "8.8.8.8.", "0x7f.1.", "2130706433.",
	"%31%32%37.0.0.1", "127%2e0%2e0%2e1", "%6c%6f%63alhost", "127.0.0.1%00", "127.0.0.1%20", "localhost%00.example.com",
	"127.0.0.1%2f@example.com",
	"１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "ｌｏｃａｌｈｏｓｔ",
	"ⓛocalhost", "lOcaLhoſt", "bücher.example",
	"%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1", "%E2%91%A0.0.0.1", "127.0.0.1\u00ad", "127.0.0.1\u200b", "١٢٧.٠.٠.١",
	"[::1%25lo]", "[fe80::1%25eth0]", "[::1%lo]", "[fe80::1%251]", "[127.0.0.1]", "[localhost]", "[::1", "::1", "[::1]]", "[[::1]]", "[]",
	"[:]",
	"[v1.fe80]", "[0x7f.1]", "[::127.1]", "[::ffff:0x7f.0.0.1]", "[::ffff:127.0.0.01]", "[1:2:3:4:5:6:7:8:9]", "[00001::1]",
	"127.0.0.1,example.com", "127.0.0.1;example.com", "(127.0.0.1)", "127.0.0.1'", "127.0.0.1!", "a*b", "a$b", "a&b=c", "a+b", "~localhost",
	"$(id).example",
}

// ipv4Spellings returns all forms of 127.0.0.1 that inet_aton accepts, except the usual one.
func ipv4Spellings() []string {
	writings := func(n uint64) []string {
		return []string{
			strconv.FormatUint(n, 10), "0x" + strconv.FormatUint(n, 16), "0X" + strconv.FormatUint(n, 16),
			"0" + strconv.FormatUint(n, 8), "000" + strconv.FormatUint(n, 8), "0x0000000000" + strconv.FormatUint(n, 16),
		}
	}
	spellings := append(writings(0x7f000001), "6425673729", "18446744071695761409", "0x17f000001", "0x", "0", "00", "0x0", "4294967295",
		"99999999999999999999")
	for _, a := range writings(127) {
		for _, b := range writings(1) { // two parts
			spellings = append(spellings, a+"."+b)
		}
		spellings = append(spellings, a+".0.1", a+".0x0.1", a+".00.0x1") // three
	}
	parts := [3][2]string{{"127", "0x7f"}, {"0", "00"}, {"1", "0x1"}}
	for i := 1; i < 16; i++ { // the bits of i choose the spelling of the four parts
		pick := func(part, bit int) string { return parts[part][i>>bit&1] }
		spellings = append(spellings, pick(0, 0)+"."+pick(1, 1)+"."+pick(1, 2)+"."+pick(2, 3))
	}
	return append(spellings, "0177.0.0.1", "0177.0000.0000.01", "127.000.000.001", "127.0.0.257", "127.0.256", "383.0.0.1",
		"127.0.0.1.0", "127.0.0.0.1", "0.0.0.0.0", "1.127.0.0.1", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "2852039166", "0251.0376.0251.0376",
		"169.254.43518",
		"0x0a000001", "167772161", "012.0.0.1", "10.1", "192.168.257", "0300.0250.0.1", "3232235777", "example.1", "example.0x7f", "a.b.1")
}

// trickyURLs returns URLs in which programs may find different hosts.
func trickyURLs(port string) []string {
	return []string{
		"http://8.8.8.8@127.0.0.1:" + port + "/", "http://8.8.8.8:80@127.0.0.1:" + port + "/", "http://127.0.0.1:" + port + `\@8.8.8.8/`,
		`http://8.8.8.8\@127.0.0.1:` + port + "/", `http:\\127.0.0.1:` + port + "/", "http:127.0.0.1:" + port + "/",
		"http:/127.0.0.1:" + port + "/",
		"http:///127.0.0.1:" + port + "/", "//127.0.0.1:" + port + "/", "127.0.0.1:" + port, "http://127.0.0.1:" + port + "#@8.8.8.8/",
		"http://127.0.0.1:" + port + "?@8.8.8.8/", "http://@127.0.0.1:" + port + "/", "http://:@127.0.0.1:" + port + "/",
		" http://127.0.0.1:" + port + "/",
		"http://127.0.0.1 :" + port + "/", "http://127.0.0.1\t:" + port + "/", "http://127.0.0.1\r\n:" + port + "/",
		"http://8.8.8.8:80:" + port + "/",
		"http://[::1]:80:" + port + "/", "http://[::1]127.0.0.1:" + port + "/", "http://127.0.0.1:" + port + ":80/",
		"HTTP://LOCALHOST:" + port + "/",
		"http://[0:0:0:0:0:0:0:1]:" + port + "/", "http://[0000:0000:0000:0000:0000:0000:0000:0001]:" + port + "/",
		"http://[::0001]:" + port + "/",
		"http://[::FFFF:7F00:1]:" + port + "/", "http://[0:0:0:0:0:ffff:127.0.0.1]:" + port + "/", "http://[::7f00:1]:" + port + "/",
		"http://[64:FF9B::7F00:0001]:" + port + "/", "ftp://127.0.0.1:" + port + "/", "gopher://127.0.0.1:" + port + "/", "unix:///tmp/socket",
	}
}
