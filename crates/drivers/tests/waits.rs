//! Callers that sleep at a device (`stack/src/inet/input/leader.rs`): events that end their sleep; no other thread waits for it.
//!
//! Needs the right to create network namespaces and devices; without it the tests print that and pass.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Lab, skipped};
use sockeye::{Config, TcpListener, TcpStream};
use sockeye_drivers::TunConfig;

/// Round trips after which a queue counts as one connection's.
const ROUNDS: usize = 40;
/// How long to wait for an event that a busy machine may delay.
const LONG: Duration = Duration::from_secs(60);

/// A stack whose callers sleep at once, and a listener of it.
fn lab(v6: bool) -> (Lab, TcpListener) {
    let config = Config { spin_max: Duration::ZERO, ..Config::default() };
    let lab = Lab::with(&TunConfig::default(), config);
    let listener = TcpListener::bind_on(&lab.stack, lab.stack_addr(v6, 0)).unwrap();
    (lab, listener)
}

/// A connection whose other end, the kernel's, echoes each byte, until one is 0, and then closes.
fn echoed(lab: &Lab, listener: &TcpListener) -> (TcpStream, JoinHandle<()>) {
    let to = listener.local_addr().unwrap();
    let echo = lab.kernel(move || drop(echo(to)));
    let stream = listener.accept().unwrap().0;
    stream.set_nodelay(true).unwrap();
    (stream, echo)
}

/// The end of [`echoed`] that gives back.
fn echo(to: SocketAddr) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut byte = [1];
    while stream.read(&mut byte).unwrap() > 0 && byte != [0] {
        stream.write_all(&byte).unwrap();
    }
    stream
}

/// Has the other end of [`echoed`] end.
fn end(mut stream: &TcpStream, echo: JoinHandle<()>) {
    stream.write_all(&[0]).unwrap();
    echo.join().unwrap();
}

fn round_trip(mut stream: &TcpStream, byte: u8) {
    stream.write_all(&[byte]).unwrap();
    let mut answer = [!byte];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [byte]);
}

/// Starts a thread that reads while nothing arrives; returns when it is about to sleep at the device.
fn asleep(lab: &Lab, stream: &TcpStream) -> JoinHandle<std::io::Result<usize>> {
    for _ in 0..10 {
        (0..ROUNDS).for_each(|_| round_trip(stream, 7));
        let before = lab.count("input_leads");
        let mut twin = stream.try_clone().unwrap();
        let reader = std::thread::spawn(move || twin.read(&mut [0; 8]));
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if lab.count("input_leads") > before {
                return reader;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The caller found the input thread at the queue, and has parked as usual.
        { stream }.write_all(&[1]).unwrap();
        if reader.join().unwrap().is_err() {
            // The caller's time was over before.
            { stream }.read_exact(&mut [0]).unwrap();
        }
    }
    panic!("no reader sleeps at the device");
}

#[test]
fn a_thread_that_sleeps_at_the_device_takes_the_frames_itself() {
    if skipped("sleeping at a device") {
        return;
    }
    let (lab, listener) = lab(false);
    let (stream, echo) = echoed(&lab, &listener);
    let counts = || ["input_leads", "input_batches", "input_by_callers"].map(|name| lab.count(name));
    let mut seen = Vec::new();
    let takes_them_himself = |seen: &mut Vec<[u64; 3]>| {
        let before = counts();
        (0..10 * ROUNDS).for_each(|_| round_trip(&stream, 8));
        let after = counts();
        let more: [u64; 3] = std::array::from_fn(|index| after[index] - before[index]);
        seen.push(more);
        let [watches, batches, by_callers] = more;
        watches > 0 && 2 * by_callers > batches
    };
    // If all threads share a busy core, the answer may for a while always arrive before the reader looks.
    let until = Instant::now() + LONG;
    let is_so = std::iter::repeat_with(|| takes_them_himself(&mut seen))
        .take_while(|is_so| *is_so || Instant::now() < until)
        .any(|is_so| is_so);
    assert!(is_so, "sleeps at the device, batches, batches taken by the reader: {seen:?}");
    end(&stream, echo);
}

#[test]
fn other_threads_end_a_sleep_at_the_device() {
    if skipped("ending a sleep at a device") {
        return;
    }
    let (lab, listener) = lab(true);
    let ends_without_a_frame = || {
        let (stream, echo) = echoed(&lab, &listener);
        let reader = asleep(&lab, &stream);
        let before = lab.tun.counts()[0].frames_in;
        stream.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 0);
        let after = lab.tun.counts()[0].frames_in;
        drop(stream);
        echo.join().unwrap();
        before == after
    };
    // The kernel looks for routers now and then, and such a frame would end the sleep as well.
    assert!((0..5).any(|_| ends_without_a_frame()), "only frames end the sleep");

    let (stream, echo) = echoed(&lab, &listener);
    let reader = asleep(&lab, &stream);
    // The kernel's end closes.
    (&stream).write_all(&[0]).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 0);
    echo.join().unwrap();
}

#[test]
fn a_sleep_at_the_device_times_out() {
    if skipped("the end of a sleep at a device") {
        return;
    }
    let (lab, listener) = lab(false);
    let (stream, echo) = echoed(&lab, &listener);
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let reader = asleep(&lab, &stream);
    assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(None).unwrap();
    round_trip(&stream, 9);
    end(&stream, echo);
}

#[test]
fn other_connections_are_served_during_and_after_a_sleep_at_the_device() {
    if skipped("others beside a sleep at a device") {
        return;
    }
    let (lab, listener) = lab(false);
    let (first, first_echo) = echoed(&lab, &listener);
    for round in 0..3 {
        let reader = asleep(&lab, &first);
        // Its handshake and its bytes arrive at the queue at which the other one sleeps.
        let (second, second_echo) = echoed(&lab, &listener);
        (0..ROUNDS).for_each(|_| round_trip(&second, 10 + round));
        (&first).write_all(&[1]).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 1);
        // No thread sleeps there now.
        (0..ROUNDS).for_each(|_| round_trip(&second, 20 + round));
        end(&second, second_echo);
    }
    end(&first, first_echo);
}

#[test]
fn timers_run_while_a_writer_sleeps_at_the_device_with_a_closed_window() {
    if skipped("a closed window before a sleep at a device") {
        return;
    }
    let (lab, listener) = lab(false);
    let to = listener.local_addr().unwrap();
    let (go, starts) = std::sync::mpsc::channel::<()>();
    let sink = lab.kernel(move || {
        let mut stream = echo(to);
        // Reads a part at each signal, and the rest when the channel is closed.
        let parts: u64 = starts.iter().map(|()| read_part(&mut stream)).sum();
        parts + std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let stream = listener.accept().unwrap().0;
    stream.set_nodelay(true).unwrap();
    (0..ROUNDS).for_each(|_| round_trip(&stream, 7));
    (&stream).write_all(&[0]).unwrap();
    let mut before = lab.count("input_leads");
    let mut twin = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        twin.write_all(&vec![3; LEN]).unwrap();
        twin.shutdown(Shutdown::Write).unwrap();
    });
    // The kernel's buffer is full, and the window is probed: a frame that only the timer has caused.
    let is_probed = |before: &mut u64| {
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let sent = lab.tun.counts()[0].frames_out;
            std::thread::sleep(Duration::from_millis(300));
            if lab.count("input_leads") > *before && lab.tun.counts()[0].frames_out == sent + 1 {
                return true;
            }
        }
        // A writer that finds the input thread at the queue parks as usual: the next window may find it elsewhere.
        *before = lab.count("input_leads");
        go.send(()).unwrap();
        false
    };
    assert!((0..5).any(|_| is_probed(&mut before)), "no closed window is probed");
    assert!(!writer.is_finished());
    drop(go);
    assert_eq!(sink.join().unwrap(), LEN as u64);
    writer.join().unwrap();
}

/// Reads as much as opens the window widely.
fn read_part(stream: &mut std::net::TcpStream) -> u64 {
    let mut part = vec![0; PART];
    stream.read_exact(&mut part).unwrap();
    PART as u64
}

const PART: usize = 16 << 20;
/// More than all buffers hold.
const LEN: usize = 150 << 20;
