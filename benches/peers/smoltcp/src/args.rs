//! The command line: flags with values, each of which has a default.
//!
//! Does not depend on the use of the flags.
//!
//! Tests: below.

use std::time::Duration;

use smoltcp::wire::Ipv4Cidr;

/// The bench's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// This end's address and network.
    pub addr: Ipv4Cidr,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Bytes of a socket's buffers.
    pub buffer: usize,
    /// How long to look for packets before sleeping.
    pub spin: Duration,
    /// The ports that receive, send and answer.
    pub ports: [u16; 3],
}

impl Args {
    /// Reads `--flag value` pairs.
    ///
    /// # Errors
    /// A flag that is not known, or without a value that it may have.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            addr: "10.9.0.2/24".parse().map_err(|()| "no address".to_owned())?,
            mtu: 1500,
            buffer: 512 << 10,
            spin: Duration::ZERO,
            ports: [5001, 5002, 5003],
        };
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            let wrong = || format!("{flag} {value}");
            match flag.as_str() {
                "--addr" => args.addr = value.parse().map_err(|()| wrong())?,
                "--mtu" => args.mtu = value.parse().map_err(|_| wrong())?,
                "--buffer" => args.buffer = value.parse().map_err(|_| wrong())?,
                "--spin-us" => args.spin = Duration::from_micros(value.parse().map_err(|_| wrong())?),
                "--receive" => args.ports[0] = value.parse().map_err(|_| wrong())?,
                "--send" => args.ports[1] = value.parse().map_err(|_| wrong())?,
                "--rr" => args.ports[2] = value.parse().map_err(|_| wrong())?,
                _ => return Err(format!("{flag} is no flag")),
            }
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_have_values_and_defaults() {
        let args = parse("--addr 10.1.2.3/16 --mtu 65535 --send 7 --spin-us 50").unwrap();
        assert_eq!((args.mtu, args.ports, args.buffer), (65_535, [5001, 7, 5003], 512 << 10));
        assert_eq!((args.addr.to_string(), args.spin), ("10.1.2.3/16".to_owned(), Duration::from_micros(50)));
        for wrong in ["--mtu", "--mtu 70000", "--addr here", "--speed 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
