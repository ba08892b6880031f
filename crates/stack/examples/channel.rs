//! A program that carries a stack's frames by itself, as a VPN or a microVM does.
//!
//! Two stacks stand for the two ends of a tunnel. Each has an interface whose frames this program takes out and puts in;
//! in between it may do anything with them: encrypt, send elsewhere, put into a guest's queue. Here it counts them. An
//! echo server on the one stack answers a client on the other.

use std::error::Error;
use std::io::{Read, Write};
use std::thread;

use sockeye::netif::{ChannelConfig, ChannelPort, FrameBytes, channel};
use sockeye::{Config, Stack, TcpListener, TcpStream};

/// Bytes that the client sends, and gets back.
const BYTES: usize = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let (here, mut here_ports) = channel(&ChannelConfig::default())?;
    let (there, mut there_ports) = channel(&ChannelConfig::default())?;
    let (left, right) = (Stack::new(Config::default())?, Stack::new(Config::default())?);
    left.attach(here, &["10.0.0.1/24".parse()?])?;
    right.attach(there, &["10.0.0.2/24".parse()?])?;
    let (near, far) = (here_ports.remove(0), there_ports.remove(0));

    let frames = thread::scope(|scope| -> Result<[u64; 2], Box<dyn Error>> {
        let out = scope.spawn(|| tunnel(&near, &far));
        let back = scope.spawn(|| tunnel(&far, &near));
        let listener = TcpListener::bind_on(&right, "10.0.0.2:7")?;
        scope.spawn(move || echo(&listener));
        let mut client = TcpStream::connect_on(&left, "10.0.0.2:7")?;
        let mut sender = client.try_clone()?;
        scope.spawn(move || sender.write_all(&vec![7; BYTES]));
        client.read_exact(&mut vec![0; BYTES])?;
        // A stack that goes ends the tunnel: its port has no more frames.
        drop((client, left, right));
        Ok([out.join().unwrap_or_default(), back.join().unwrap_or_default()])
    })?;
    println!("{BYTES} bytes there and back in {} and {} frames", frames[0], frames[1]);
    Ok(())
}

/// Carries frames until a stack is gone. Returns how many.
fn tunnel(from: &ChannelPort, to: &ChannelPort) -> u64 {
    let (mut bytes, mut frames) = (Vec::new(), 0);
    while let Some(frame) = from.recv(None) {
        bytes.resize(frame.len(), 0);
        frame.copy_to(&mut bytes);
        if to.send(FrameBytes::from(&bytes[..]), None).is_err() {
            break;
        }
        frames += 1;
    }
    frames
}

fn echo(listener: &TcpListener) -> std::io::Result<()> {
    let mut stream = listener.accept()?.0;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}
