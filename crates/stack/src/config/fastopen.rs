//! The bits of [`TcpConfig::fastopen`](super::TcpConfig::fastopen), which are those of Linux's `tcp_fastopen`, and the keys of
//! cookies.

use std::fmt;
use std::str::FromStr;

/// `TcpConfig::fastopen`: connects may send text with their SYN.
pub const CLIENT: u32 = 1;
/// `TcpConfig::fastopen`: listeners that ask for it accept text on SYNs.
pub const SERVER: u32 = 2;
/// `TcpConfig::fastopen`: a client sends text although it has no cookie.
pub const CLIENT_WITHOUT_COOKIE: u32 = 4;
/// `TcpConfig::fastopen`: a server accepts text on a SYN without the option.
pub const SERVER_WITHOUT_COOKIE: u32 = 0x200;
/// `TcpConfig::fastopen`: every listener accepts text, with its backlog as the queue's length.
pub const SERVER_ALL: u32 = 0x400;
/// All bits that mean something.
pub(crate) const ALL: u32 = CLIENT | SERVER | CLIENT_WITHOUT_COOKIE | SERVER_WITHOUT_COOKIE | SERVER_ALL;

/// Keys of a server's cookies (`tcp_fastopen_key`, `TCP_FASTOPEN_KEY`), 16 bytes each. A cookie is Linux's function of
/// a key and both addresses, so servers that share an address may share keys. They are secret: with a key, anyone can
/// make the cookie of any client.
///
/// As text they are as in `/proc/sys/net/ipv4/tcp_fastopen_key`: four words of eight hexadecimal digits, each the value
/// of four bytes in little-endian order, with hyphens between; the backup key follows after a comma.
///
/// ```
/// use sockeye::fastopen::Keys;
/// let keys: Keys = "a0bf63f7-ed803d81-cd641d30-cebc4a90".parse()?;
/// assert_eq!(keys.primary[..4], [0xf7, 0x63, 0xbf, 0xa0]);
/// # Ok::<(), sockeye::fastopen::BadKeys>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// The key of new cookies.
    pub primary: [u8; 16],
    /// Another key whose cookies are valid: the old or the new primary key, during a change on several servers.
    pub backup: Option<[u8; 16]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.backup.is_some() { "Keys(2)" } else { "Keys(1)" })
    }
}

/// Text that is not a valid [`Keys`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadKeys;

impl fmt::Display for BadKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("give one or two keys, such as a0bf63f7-ed803d81-cd641d30-cebc4a90, with a comma between")
    }
}

impl std::error::Error for BadKeys {}

impl FromStr for Keys {
    type Err = BadKeys;

    fn from_str(text: &str) -> Result<Self, BadKeys> {
        let (primary, backup) = match text.split_once(',') {
            None => (text, None),
            Some((primary, backup)) => (primary, Some(backup)),
        };
        Ok(Self { primary: key(primary)?, backup: backup.map(key).transpose()? })
    }
}

fn key(text: &str) -> Result<[u8; 16], BadKeys> {
    let mut bytes = [0; 16];
    let mut words = text.trim().split('-');
    for place in bytes.as_chunks_mut::<4>().0 {
        let word = words.next().filter(|word| word.len() <= 8 && !word.starts_with('+')).ok_or(BadKeys)?;
        *place = u32::from_str_radix(word, 16).map_err(|_| BadKeys)?.to_le_bytes();
    }
    if words.next().is_some() { Err(BadKeys) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_linux_writes_them() {
        let one: Keys = "00000001-00000002-00000003-f0000004".parse().unwrap();
        assert_eq!(one.primary, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0xf0]);
        assert_eq!((one.backup, format!("{one:?}").as_str()), (None, "Keys(1)"), "a secret is not shown");
        let two: Keys = "1-2-3-4,00000001-00000002-00000003-f0000004\n".parse().unwrap();
        assert_eq!(two.backup, Some(one.primary));
        for bad in ["", "1-2-3", "1-2-3-4-5", "1-2-3-4,", "123456789-2-3-4", "g-2-3-4", "+1-2-3-4", "1--3-4"]
        {
            assert_eq!(bad.parse::<Keys>(), Err(BadKeys), "{bad:?}");
        }
    }
}
