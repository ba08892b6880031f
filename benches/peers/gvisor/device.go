// The TUN device as the netstack's link endpoint.
//
// Purpose: gVisor's own endpoint for descriptors (link/fdbased) leaves checksums and segmentation to the kernel on packet
// sockets only. This one does so on a TUN device with virtio headers, in the manner of those VPN programs that use the
// netstack, so that it is measured at its best.
//
// Must not know: what the packets carry.
//
// Invariants: one goroutine reads and delivers; writers may be many, each packet is one system call.

package main

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/rawfile"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The header before each frame: virtio 1.2, section 5.1.6.
const (
	vnetLen       = 10
	needsChecksum = 1
	gsoTCPv4      = 1
)

// Room for one frame: a short one takes the first part alone, the second stays for the next frame.
const (
	shortLen = 2 << 10
	longLen  = 64 << 10
)

// Bytes of the largest packet that the device cuts.
const gsoMax = 65535

type device struct {
	fd   int
	mtu  uint32
	spin time.Duration

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
	reading    sync.WaitGroup
}

var _ stack.LinkEndpoint = (*device)(nil)
var _ stack.GSOEndpoint = (*device)(nil)

func newDevice(fd int, mtu uint32, spin time.Duration) (*device, error) {
	return &device{fd: fd, mtu: mtu, spin: spin}, unix.SetNonblock(fd, true)
}

// Attach begins to read; without a dispatcher it only forgets the old one, as the process ends then.
func (d *device) Attach(dispatcher stack.NetworkDispatcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dispatcher != nil && d.dispatcher == nil {
		d.reading.Add(1)
		go d.read(dispatcher)
	}
	d.dispatcher = dispatcher
}

func (d *device) read(dispatcher stack.NetworkDispatcher) {
	defer d.reading.Done()
	var vnet [vnetLen]byte
	short, long := buffer.NewViewSize(shortLen), buffer.NewViewSize(longLen)
	for {
		n, err := d.next([][]byte{vnet[:], short.AsSlice(), long.AsSlice()})
		if err != nil {
			return
		}
		if n -= vnetLen; n <= 0 {
			continue
		}
		var payload buffer.Buffer
		_ = payload.Append(short)
		short = buffer.NewViewSize(shortLen)
		if n > shortLen {
			_ = payload.Append(long)
			long = buffer.NewViewSize(longLen)
		}
		payload.Truncate(int64(n))
		packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
		dispatcher.DeliverNetworkPacket(header.IPv4ProtocolNumber, packet)
		packet.DecRef()
	}
}

// next reads a frame. It looks again and again for as long as it may before it sleeps.
func (d *device) next(parts [][]byte) (int, error) {
	var since time.Time
	for {
		n, err := unix.Readv(d.fd, parts)
		switch {
		case err == nil:
			return n, nil
		case err == unix.EINTR:
		case err != unix.EAGAIN:
			return 0, err
		case d.spin > 0 && since.IsZero():
			since = time.Now()
		case d.spin > 0 && time.Since(since) < d.spin:
		default:
			since = time.Time{}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
				return 0, err
			}
		}
	}
}

// WritePackets writes each packet with the header that says what is left to the device.
func (d *device) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	written := 0
	for _, packet := range packets.AsSlice() {
		if err := d.write(packet); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

func (d *device) write(packet *stack.PacketBuffer) tcpip.Error {
	var vnet [vnetLen]byte
	if gso := packet.GSOOptions; gso.Type != stack.GSONone && gso.NeedsCsum {
		vnet[0] = needsChecksum
		binary.NativeEndian.PutUint16(vnet[6:], gso.L3HdrLen)
		binary.NativeEndian.PutUint16(vnet[8:], gso.CsumOffset)
		if packet.Data().Size() > int(gso.MSS) {
			vnet[1] = gsoTCPv4
			binary.NativeEndian.PutUint16(vnet[2:], uint16(packet.HeaderSize()))
			binary.NativeEndian.PutUint16(vnet[4:], gso.MSS)
		}
	}
	var room [8]unix.Iovec
	parts := append(room[:0], rawfile.IovecFromBytes(vnet[:]))
	for _, part := range packet.AsSlices() {
		parts = rawfile.AppendIovecFromBytes(parts, part, rawfile.MaxIovs)
	}
	if errno := rawfile.NonBlockingWriteIovec(d.fd, parts); errno != 0 {
		return tcpip.TranslateErrno(errno)
	}
	return nil
}

// Capabilities leaves checksums of what comes to the device. Those of what goes are the device's with GSO alone: packets
// that are sent without (handshakes, resets) have no header that says so.
func (d *device) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

func (d *device) GSOMaxSize() uint32               { return gsoMax }
func (d *device) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// The rest of a link endpoint: a TUN device has no link layer.
func (d *device) MTU() uint32                             { return d.mtu }
func (d *device) SetMTU(uint32)                           {}
func (d *device) MaxHeaderLength() uint16                 { return 0 }
func (d *device) LinkAddress() tcpip.LinkAddress          { return "" }
func (d *device) SetLinkAddress(tcpip.LinkAddress)        {}
func (d *device) Wait()                                   { d.reading.Wait() }
func (d *device) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (d *device) AddHeader(*stack.PacketBuffer)           {}
func (d *device) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (d *device) Close()                                  {}
func (d *device) SetOnCloseAction(func())                 {}
func (d *device) IsAttached() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.dispatcher != nil
}
