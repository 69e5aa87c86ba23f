//! Signatures of requests: AWS Signature Version 4, in headers.

use std::time::SystemTime;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use ureq::http::{HeaderName, header};

use super::settings::Keys;
use crate::time::to_http;
use crate::url::{Url, hex};

/// Headers by which the server knows who asks for what is at `url`, whose path and query are escaped as a signature has
/// them. `headers` are signed along, in lower case.
pub(super) fn headers(
    keys: &Keys,
    region: &str,
    method: &str,
    url: &Url,
    headers: &[(&str, &str)],
    now: SystemTime,
) -> Vec<(HeaderName, String)> {
    let time = timestamp(now);
    let day = time.get(..8).unwrap_or_default();
    let empty = hex(&Sha256::digest(b""));
    let host = host(url);
    let mut signed = vec![("host", host.as_str()), ("x-amz-content-sha256", &empty), ("x-amz-date", &time)];
    signed.extend(keys.token.iter().map(|token| ("x-amz-security-token", token.as_str())));
    signed.extend_from_slice(headers);
    signed.sort_unstable();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: Vec<_> = signed.iter().map(|(name, value)| format!("{name}:{}", value.trim())).collect();
    let lines = lines.join("\n");
    let query = canonical(url.query().unwrap_or_default());
    let request = format!("{method}\n{}\n{query}\n{lines}\n\n{names}\n{empty}", url.path());
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
    let mut key = format!("AWS4{}", keys.secret).into_bytes();
    for part in [day, region, "s3", "aws4_request"] {
        key = authenticated(&key, part);
    }
    let signature = hex(&authenticated(&key, &text));
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", keys.id);
    let mut all = vec![
        (header::HOST, host),
        (HeaderName::from_static("x-amz-content-sha256"), empty),
        (HeaderName::from_static("x-amz-date"), time),
        (header::AUTHORIZATION, authorization),
    ];
    let token = HeaderName::from_static("x-amz-security-token");
    all.extend(keys.token.iter().map(|value| (token.clone(), value.clone())));
    all
}

fn authenticated(key: &[u8], text: &str) -> Vec<u8> {
    // A key may have any length.
    let Ok(mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(key) else { return Vec::new() };
    mac.chain_update(text).finalize().into_bytes().to_vec()
}

/// Host, and the port unless it is the one that goes without saying.
fn host(url: &Url) -> String {
    match url.origin() {
        ("http", host, 80) | ("https", host, 443) => host.to_owned(),
        (_, host, port) => format!("{host}:{port}"),
    }
}

/// The parts of a query in order, each with a value.
fn canonical(query: &str) -> String {
    let mut parts: Vec<_> = query.split('&').filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    let with_value = |part: &str| if part.contains('=') { part.to_owned() } else { format!("{part}=") };
    parts.into_iter().map(with_value).collect::<Vec<_>>().join("&")
}

/// As `20130524T000000Z`.
fn timestamp(time: SystemTime) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // As `Fri, 24 May 2013 00:00:00 GMT`. What is none, by the clock of a server, is refused by it.
    let text = to_http(time);
    let mut words = text.split([' ', ':']).skip(1);
    let mut next = || words.next().unwrap_or_default();
    let (day, month, year) = (next(), next(), next());
    let month = MONTHS.iter().position(|known| *known == month).unwrap_or_default() + 1;
    let (hour, minute, second) = (next(), next(), next());
    format!("{year}{month:02}{day}T{hour}{minute}{second}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header" in Amazon's reference of S3.
    #[test]
    fn signatures_are_those_of_the_reference() {
        let keys = Keys::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        assert_eq!(timestamp(now), "20130524T000000Z");
        // By the clock of a server that means harm.
        timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800));
        let of = |path_and_query: &str, more: &[(&str, &str)]| {
            let url = Url::parse(&format!("https://examplebucket.s3.amazonaws.com{path_and_query}")).unwrap();
            let all = headers(&keys, "us-east-1", "GET", &url, more, now);
            let (_, said) = all.into_iter().find(|(name, _)| name == header::AUTHORIZATION).unwrap();
            said.rsplit_once('=').unwrap().1.to_owned()
        };
        assert_eq!(
            of("/test.txt", &[("range", "bytes=0-9")]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(of("/?lifecycle", &[]), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        assert_eq!(
            of("/?prefix=J&max-keys=2", &[]),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }
}
