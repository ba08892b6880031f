//! passt's descriptions of ports, which `-t` and `-u` take: `none`, `auto`, or a list such as `22,80-82:8080-8082` behind an address and a slash.
//!
//! Tests: below.

/// Ports of a description, as `-p` has them.
///
/// # Errors
/// That the gateway has nothing like it: exclusions, interfaces.
pub fn read(text: &str, suffix: &str) -> Result<Vec<String>, String> {
    let (addr, list) = text.rsplit_once('/').map_or((None, text), |(addr, list)| (Some(addr), list));
    if let Some(other) = [addr.unwrap_or_default(), list].into_iter().find(|text| text.contains(['%', '~'])) {
        return Err(format!("{other:?}: interfaces and exclusions are not supported"));
    }
    let addr = match addr {
        Some(addr) if addr.contains(':') => format!("[{}]:", addr.trim_matches(['[', ']'])),
        Some(addr) => format!("{addr}:"),
        None => String::new(),
    };
    match list {
        "none" | "" => Ok(Vec::new()),
        // Without a transport it would be both.
        "auto" => Ok(vec![format!("{addr}auto{}", if suffix.is_empty() { "/tcp" } else { suffix })]),
        "all" => Err("all: name the ports".to_owned()),
        list => Ok(list.split(',').map(|ports| format!("{addr}{ports}{suffix}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn lists_become_ports_and_what_has_no_like_is_refused() {
        let own = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(read("none", ""), own(&[]));
        assert_eq!(read("auto", ""), own(&["auto/tcp"]));
        assert_eq!(read("192.0.2.1/auto", "/udp"), own(&["192.0.2.1:auto/udp"]));
        assert_eq!(read("22,80-82:8080-8082", ""), own(&["22", "80-82:8080-8082"]));
        assert_eq!(read("192.0.2.1/5:6", "/udp"), own(&["192.0.2.1:5:6/udp"]));
        assert_eq!(read("::1/5", ""), own(&["[::1]:5"]));
        for wrong in ["5-25,~10-20", "127.0.0.1%lo/5", "all"] {
            assert!(read(wrong, "").is_err(), "{wrong}");
        }
    }
}
