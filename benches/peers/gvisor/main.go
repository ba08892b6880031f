// Command gvisor is gVisor's netstack at the far end of a TUN device, for `sockeye bench tun --peers`.
//
// Purpose: the netstack with the settings under which it is fastest on such a device, and the three services that the
// bench asks of every far end: receive, send, answer byte by byte.
//
// Its standard input is the device, opened by the bench. Its standard output is a socket to the bench: it says one line
// when it is ready, answers each line "cpu" by the nanoseconds of CPU time that it has used, and ends when the other
// side closes.
//
// Must not know: what is measured.
//
// Tests: the bench's own, when the peers are built.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	nicID      tcpip.NICID = 1
	modulePath             = "gvisor.dev/gvisor"
	// The largest buffers that the netstack has by itself; more does not make it faster here.
	bufferMin = 4 << 10
	bufferMax = 8 << 20
	// Garbage is collected less often than by default: most of it is pooled anyway.
	gcPercent = 400
)

func main() {
	addr := flag.String("addr", "10.9.0.2/24", "this end's address and network")
	mtu := flag.Uint("mtu", 1500, "bytes of the largest packet")
	buffer := flag.Int("buffer", 1<<20, "bytes of a socket's buffers at the beginning")
	spin := flag.Uint("spin-us", 0, "microseconds of looking for packets before sleeping")
	receive := flag.Uint("receive", 5001, "the port that receives")
	send := flag.Uint("send", 5002, "the port that sends")
	rr := flag.Uint("rr", 5003, "the port that answers")
	flag.Parse()
	debug.SetGCPercent(gcPercent)
	ports := [3]uint16{uint16(*receive), uint16(*send), uint16(*rr)}
	pause := time.Duration(*spin) * time.Microsecond
	if err := run(*addr, uint32(*mtu), *buffer, pause, ports); err != nil {
		fmt.Fprintln(os.Stderr, "gvisor:", err)
		os.Exit(1)
	}
}

func run(addr string, mtu uint32, buffer int, spin time.Duration, ports [3]uint16) error {
	prefix, err := netip.ParsePrefix(addr)
	if err != nil {
		return err
	}
	s, err := newStack(prefix, mtu, buffer, spin)
	if err != nil {
		return err
	}
	for index, serve := range []service{discard, chargen, echo} {
		if err := listen(s, ports[index], serve); err != nil {
			return err
		}
	}
	return answer(fmt.Sprintf("ready gVisor netstack %s, MTU %d, checksums and segmentation by the device, CUBIC", version(), mtu))
}

func newStack(prefix netip.Prefix, mtu uint32, buffer int, spin time.Duration) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC},
	})
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: bufferMin, Default: buffer, Max: bufferMax}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: bufferMin, Default: buffer, Max: bufferMax}
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &receive, &send} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, fmt.Errorf("an option of TCP: %s", err)
		}
	}
	device, err := newDevice(int(os.Stdin.Fd()), mtu, spin)
	if err != nil {
		return nil, err
	}
	if err := s.CreateNIC(nicID, device); err != nil {
		return nil, fmt.Errorf("the interface: %s", err)
	}
	address := tcpip.ProtocolAddress{
		Protocol: header.IPv4ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address:   tcpip.AddrFromSlice(prefix.Addr().AsSlice()),
			PrefixLen: prefix.Bits(),
		},
	}
	if err := s.AddProtocolAddress(nicID, address, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("the address: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	return s, nil
}

// answer says that all is ready and then what the other side asks, until that closes.
func answer(ready string) error {
	socket := os.NewFile(1, "requests")
	if _, err := fmt.Fprintln(socket, ready); err != nil {
		return err
	}
	requests := bufio.NewScanner(socket)
	for requests.Scan() {
		if requests.Text() != "cpu" {
			return fmt.Errorf("%q is no request", requests.Text())
		}
		var used unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(socket, used.Nano()); err != nil {
			return err
		}
	}
	return requests.Err()
}

// version is what the binary was built with.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown version)"
	}
	for _, module := range info.Deps {
		if module.Path == modulePath {
			return module.Version
		}
	}
	return "(unknown version)"
}
