package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/cors"
)

// Network is what is configured of connections and requests by where they come from.
type Network struct {
	TrustedProxies conn.Proxies
	Origins        cors.Origins
}

// networkVariables are those of connections.
func (c *Config) networkVariables() []variable {
	return []variable{
		{name: "FORGERUN_TRUSTED_PROXIES",
			help:  "networks of the proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8,192.0.2.7; unset: nobody's",
			parse: networks(&c.Network.TrustedProxies)},
		{name: "FORGERUN_CORS_ORIGINS", dev: cors.Loopback,
			help: "origins whose web pages may call the API from a browser, such as https://app.example.com,http://localhost:5173; " +
				"loopback: all of this machine; *: all, not with FORGERUN_OPEN_REGISTRATION; unset: none",
			parse: origins(&c.Network.Origins)},
	}
}

func origins(field *cors.Origins) func(string) error {
	return func(s string) (err error) {
		*field, err = cors.Parse(s)
		return err
	}
}

// networks is a list of networks and single addresses.
func networks(field *conn.Proxies) func(string) error {
	return func(s string) error {
		*field = nil
		for text := range strings.SplitSeq(s, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			network, err := netip.ParsePrefix(text)
			if addr, single := netip.ParseAddr(text); single == nil && addr.Zone() == "" {
				network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			if err != nil || network.Addr().Is4In6() {
				return fmt.Errorf("networks and addresses separated by commas, such as 10.0.0.0/8,192.0.2.7,2001:db8::/32")
			}
			*field = append(*field, network.Masked())
		}
		return nil
	}
}
