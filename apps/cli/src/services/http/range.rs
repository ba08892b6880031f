//! The requested part of a file (RFC 9110 section 14), and the file's type.
//!
//! Does not depend on files. Invariant: a part lies within the file and is not empty. Tests: below.

use std::ops::Range;

/// The part of a file to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Everything. So too if the field is malformed or asks for several parts, which may be ignored.
    Whole,
    /// These bytes.
    Some(Range<u64>),
    /// Nothing: the requested part begins behind the end.
    None,
}

/// Reads a `Range` field about a file of `len` bytes.
pub fn read(field: &str, len: u64) -> Part {
    let asked = field.strip_prefix("bytes=");
    let Some((first, last)) = asked.and_then(|text| text.trim().split_once('-')) else { return Part::Whole };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>());
    let range = match (first, last) {
        ("", last) => match number(last) {
            // The last so many.
            Some(Ok(count)) => len.saturating_sub(count)..len,
            Some(Err(_)) | None => return Part::Whole,
        },
        (first, "") => match number(first) {
            Some(Ok(first)) => first..len,
            Some(Err(_)) | None => return Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(Ok(first)), Some(Ok(last))) if first <= last => first..last.saturating_add(1).min(len),
            _ => return Part::Whole,
        },
    };
    if range.is_empty() { Part::None } else { Part::Some(range) }
}

/// Endings of names, and the media types that go with them.
const MEDIA_TYPES: [(&str, &str); 15] = [
    ("html", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("json", "application/json"),
    ("wasm", "application/wasm"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("mp4", "video/mp4"),
    ("mp3", "audio/mpeg"),
];

/// The media type of a file of this name.
pub fn media_type(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let known = MEDIA_TYPES.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known));
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, len: u64) -> Part {
        read(text, len)
    }

    #[test]
    fn ranges_are_cut_to_the_file_and_ranges_behind_it_are_unsatisfiable() {
        for (text, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-500", 2..100),
            ("bytes=99-", 99..100),
            ("bytes=-10", 90..100),
            ("bytes=-500", 0..100),
            ("bytes=0-18446744073709551615", 0..100),
        ] {
            assert_eq!(part(text, 100), Part::Some(range), "{text}");
        }
        for text in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(part(text, 100), Part::None, "{text}");
        }
        assert_eq!(part("bytes=0-", 0), Part::None);
    }

    #[test]
    fn malformed_and_multiple_ranges_mean_the_whole_file() {
        for text in ["bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,5-6", "lines=1-2", "bytes=+1-2", "bytes=x-"]
        {
            assert_eq!(part(text, 100), Part::Whole, "{text}");
        }
    }

    #[test]
    fn media_types_are_chosen_by_the_file_extension() {
        assert_eq!(media_type("/a.b/index.HTML"), "text/html; charset=utf-8");
        assert_eq!(media_type("/png"), "application/octet-stream");
    }
}
