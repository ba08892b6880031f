// The services: what each connection to a port gets.
//
// Purpose: the netstack's endpoints used directly, without the adapter that makes net.Conn of them, which costs a lock and
// a timer more for each call.
//
// Invariant: bytes are copied out of and into a buffer of the service's own, as an application has it.

package main

import (
	"bytes"
	"fmt"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// Bytes of a read or write, as the bench's other far ends have it.
	chunk   = 256 << 10
	backlog = 16
)

// conn is an endpoint that can be waited for.
type conn struct {
	tcpip.Endpoint
	ready chan struct{}
}

// service works on a connection until its other side ends it.
type service func(conn)

func newConn(endpoint tcpip.Endpoint, queue *waiter.Queue, events waiter.EventMask) conn {
	entry, ready := waiter.NewChannelEntry(events | waiter.EventErr | waiter.EventHUp)
	queue.EventRegister(&entry)
	return conn{endpoint, ready}
}

// listen serves each connection to port, on goroutines of their own.
func listen(s *stack.Stack, port uint16, serve service) error {
	var queue waiter.Queue
	endpoint, err := s.NewEndpoint(tcp.ProtocolNumber, header.IPv4ProtocolNumber, &queue)
	if err != nil {
		return fmt.Errorf("a socket: %s", err)
	}
	if err := endpoint.Bind(tcpip.FullAddress{Port: port}); err != nil {
		return fmt.Errorf("port %d: %s", port, err)
	}
	if err := endpoint.Listen(backlog); err != nil {
		return fmt.Errorf("port %d: %s", port, err)
	}
	listener := newConn(endpoint, &queue, waiter.ReadableEvents)
	go func() {
		for {
			accepted, queue, err := listener.Accept(nil)
			if _, empty := err.(*tcpip.ErrWouldBlock); empty {
				<-listener.ready
				continue
			}
			if err != nil {
				return
			}
			accepted.SocketOptions().SetDelayOption(false)
			go func() {
				defer accepted.Close()
				serve(newConn(accepted, queue, waiter.ReadableEvents|waiter.WritableEvents))
			}()
		}
	}()
	return nil
}

// read fills some of buf; 0 when there will be no more.
func (c conn) read(buf []byte) int {
	for {
		rest := tcpip.SliceWriter(buf)
		result, err := c.Read(&rest, tcpip.ReadOptions{})
		if _, empty := err.(*tcpip.ErrWouldBlock); empty {
			<-c.ready
			continue
		}
		if err != nil {
			return 0
		}
		if result.Count > 0 {
			c.ModerateRecvBuf(result.Count)
			return result.Count
		}
	}
}

// write writes all of buf; it returns false if the peer no longer accepts data.
func (c conn) write(buf []byte) bool {
	payload := bytes.NewReader(buf)
	for payload.Len() > 0 {
		_, err := c.Write(payload, tcpip.WriteOptions{})
		if _, full := err.(*tcpip.ErrWouldBlock); full {
			<-c.ready
			continue
		}
		if err != nil {
			return false
		}
	}
	return true
}

func discard(c conn) {
	buf := make([]byte, chunk)
	for c.read(buf) > 0 {
	}
}

func chargen(c conn) {
	buf := make([]byte, chunk)
	for c.write(buf) {
	}
}

func echo(c conn) {
	buf := make([]byte, 1)
	for c.read(buf) > 0 && c.write(buf) {
	}
}
