//! What names of files of a kind end in.

/// As Python's `mimetypes` guesses it; an empty one of what is not known.
pub(super) fn extension(kind: &str) -> &'static str {
    if kind.ends_with("/javascript") || kind.ends_with("/x-javascript") {
        return ".js";
    }
    match kind {
        "image/png" => ".png",
        "image/jpeg" | "image/jpg" => ".jpg",
        "image/gif" => ".gif",
        "image/svg+xml" => ".svg",
        "image/webp" => ".webp",
        "image/avif" => ".avif",
        "image/bmp" => ".bmp",
        "image/tiff" => ".tiff",
        "image/vnd.microsoft.icon" | "image/x-icon" => ".ico",
        "text/css" => ".css",
        "text/html" => ".html",
        "text/plain" => ".txt",
        "text/csv" => ".csv",
        "text/xml" | "application/xml" => ".xml",
        "text/vtt" => ".vtt",
        "application/json" => ".json",
        "application/pdf" => ".pdf",
        "application/zip" => ".zip",
        "application/octet-stream" => ".bin",
        "application/wasm" => ".wasm",
        "application/font-woff" | "font/woff" => ".woff",
        "font/woff2" => ".woff2",
        "font/ttf" | "application/x-font-ttf" => ".ttf",
        "font/otf" => ".otf",
        "audio/mpeg" => ".mp3",
        "audio/x-wav" | "audio/wav" => ".wav",
        "audio/ogg" => ".oga",
        "video/mp4" => ".mp4",
        "video/webm" => ".webm",
        "video/ogg" => ".ogv",
        _ => "",
    }
}

/// `path` with what names of that kind end in, if it does not end so.
pub(super) fn with_extension(path: String, kind: &str) -> String {
    let wanted = extension(kind);
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name.rfind('.').filter(|dot| *dot > 0).and_then(|dot| name.get(dot..)).unwrap_or_default();
    if end.eq_ignore_ascii_case(wanted) { path } else { path + wanted }
}
