package webhook

import (
	"fmt"
	"slices"
	"strconv"
)

// notHTTP lists the ports that the Fetch standard blocks ("bad ports"), and the ports of databases and brokers. The services on these
// ports might execute parts of a request as commands.
var notHTTP = []uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111, 113, 115,
	117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
	636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697,
	10080, // the last bad port of the Fetch standard
	1433, 1521, 2181, 2379, 2380, 3306, 5432, 5672, 6379, 9042, 9092, 9200, 9300, 11211, 26379, 27017,
}

// checkPort describes the problem with the port of a URL, or returns "".
func checkPort(port string) string {
	if port == "" {
		return "" // default port of the scheme
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		return notAURL
	case slices.Contains(notHTTP, uint16(n)):
		return fmt.Sprintf("Port %d belongs to a service other than HTTP; no requests are sent there.", n)
	}
	return ""
}
