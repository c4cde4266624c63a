//! Media types by the ends of file names.

/// Returns the media type of a file, by the end of its name.
pub fn content_type(name: &str) -> &'static str {
    let file = name.rsplit('/').next().unwrap_or(name);
    let Some((_, end)) = file.rsplit_once('.') else { return DEFAULT };
    let found = TYPES.iter().find(|(ends, _)| ends.iter().any(|known| end.eq_ignore_ascii_case(known)));
    found.map_or(DEFAULT, |(_, media_type)| media_type)
}

/// Media type of everything that the table does not have.
const DEFAULT: &str = "application/octet-stream";

/// Ends of names and their media types, as registered with IANA.
const TYPES: [(&[&str], &str); 32] = [
    (&["html", "htm"], "text/html; charset=utf-8"),
    (&["css"], "text/css; charset=utf-8"),
    (&["js", "mjs"], "text/javascript; charset=utf-8"),
    (&["json", "map"], "application/json"),
    (&["txt", "log", "text"], "text/plain; charset=utf-8"),
    (&["md"], "text/markdown; charset=utf-8"),
    (&["csv"], "text/csv; charset=utf-8"),
    (&["xml"], "application/xml"),
    (&["svg"], "image/svg+xml"),
    (&["png"], "image/png"),
    (&["jpg", "jpeg"], "image/jpeg"),
    (&["gif"], "image/gif"),
    (&["webp"], "image/webp"),
    (&["avif"], "image/avif"),
    (&["ico"], "image/vnd.microsoft.icon"),
    (&["woff"], "font/woff"),
    (&["woff2"], "font/woff2"),
    (&["ttf"], "font/ttf"),
    (&["otf"], "font/otf"),
    (&["wasm"], "application/wasm"),
    (&["pdf"], "application/pdf"),
    (&["zip"], "application/zip"),
    (&["gz"], "application/gzip"),
    (&["zst"], "application/zstd"),
    (&["tar"], "application/x-tar"),
    (&["mp3"], "audio/mpeg"),
    (&["ogg", "oga", "opus"], "audio/ogg"),
    (&["wav"], "audio/wav"),
    (&["mp4", "m4v"], "video/mp4"),
    (&["webm"], "video/webm"),
    (&["ogv"], "video/ogg"),
    (&["epub"], "application/epub+zip"),
];

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn ends_of_names_have_types() {
        assert_eq!(content_type("a/b.HTML"), "text/html; charset=utf-8");
        assert_eq!(content_type("a.tar.gz"), "application/gzip");
        assert_eq!(content_type("a.html/b"), "application/octet-stream");
        assert_eq!(content_type("html"), "application/octet-stream");
    }
}
