// Server serves all APIs of package apis at one address.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
)

func main() {
	address := flag.String("listen", "127.0.0.1:3000", "where to listen")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		fmt.Println("http://" + listener.Addr().String())
		err = http.Serve(listener, apis.Handler()) //nolint:gosec // it runs for a short time, on loopback
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
