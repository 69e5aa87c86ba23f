//! Content types, and what a browser may do with a file.

/// Of what no suffix says more.
pub(crate) const BYTES: &str = "application/octet-stream";

/// What browsers show in a viewer of their own, which does not work in a sandbox.
const DOCUMENT: &str = "application/pdf";

/// The content type of a file of that name.
pub(crate) fn of(name: &[u8]) -> String {
    let suffix = name.iter().rposition(|&byte| byte == b'.').map(|dot| &name[dot + 1..]);
    let suffix = suffix.and_then(|suffix| std::str::from_utf8(suffix).ok());
    let kind = match suffix.and_then(|suffix| mime_guess::from_ext(suffix).first_raw()) {
        Some(kind) => kind,
        // Files that have no suffix by custom.
        None if is_text(name) => "text/plain",
        None => BYTES,
    };
    let is_text = kind.starts_with("text/") || kind.ends_with("/json") || kind.ends_with("/javascript");
    if is_text { format!("{kind}; charset=utf-8") } else { kind.to_owned() }
}

fn is_text(name: &[u8]) -> bool {
    const NAMES: &[&[u8]] = &[
        b"README",
        b"LICENSE",
        b"LICENCE",
        b"COPYING",
        b"AUTHORS",
        b"NEWS",
        b"CHANGES",
        b"CHANGELOG",
        b"INSTALL",
        b"TODO",
        b"NOTICE",
        b"Makefile",
        b"Dockerfile",
        b"Kconfig",
        b"MAINTAINERS",
        b"CREDITS",
        b"VERSION",
    ];
    NAMES.contains(&name)
}

/// The Content-Security-Policy of a file. Pages in archives may be anybody's: they run no scripts, which both the
/// sandbox and the lack of a source for them say, and fetch nothing from elsewhere. They belong to this server, so that
/// style sheets and pictures beside them do show: others get none of these. Without scripts a page can do nothing with
/// that.
pub(crate) fn policy(kind: &str) -> &'static str {
    const RULES: &str = "sandbox allow-same-origin; default-src 'none'; img-src 'self' data:; media-src 'self' data:; \
                         font-src 'self' data:; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                         frame-ancestors 'none'";
    if kind == DOCUMENT { "default-src 'none'; frame-ancestors 'none'" } else { RULES }
}

/// A Content-Disposition that has a browser save a file under that name.
pub(crate) fn attachment(name: &[u8]) -> String {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-._ ()[]+,=@".contains(&byte);
    let plain: String = name.iter().map(|&byte| if is_harmless(byte) { char::from(byte) } else { '_' }).collect();
    let text = String::from_utf8_lossy(name);
    if plain.as_bytes() == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", crate::url::encode(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_files_are() {
        for (name, kind) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.HTM", "text/html; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.b.png", "image/png"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.mp4", "video/mp4"),
            ("README", "text/plain; charset=utf-8"),
            ("a", BYTES),
            ("a.", BYTES),
            (".png", "image/png"),
            ("", BYTES),
        ] {
            assert_eq!(of(name.as_bytes()), kind, "{name}");
        }
        assert_eq!(of(b"a.\xff"), BYTES);
    }

    #[test]
    fn no_name_ends_the_header_that_it_stands_in() {
        assert_eq!(attachment(b"a b.txt"), "attachment; filename=\"a b.txt\"");
        let bad = attachment(b"a\"; x=\r\nSet-Cookie: 1\\\xc3\xa9");
        assert_eq!(
            bad,
            "attachment; filename=\"a__ x=__Set-Cookie_ 1___\"; filename*=UTF-8''a%22%3B%20x%3D%0D%0ASet-Cookie%3A%201%5C%C3%A9"
        );
    }
}
