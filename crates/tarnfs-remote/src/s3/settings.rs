//! What the environment and the files of Amazon's tools (`~/.aws/config`, `~/.aws/credentials`) say: where buckets are,
//! and who asks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::url::Url;

/// A file that is longer is none of these.
const LONGEST: u64 = 1 << 20;

/// By whom a request is signed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    /// Of a session, which ends.
    pub(super) token: Option<String>,
}

impl Keys {
    pub(super) fn new(id: &str, secret: &str) -> Self {
        Self { id: id.to_owned(), secret: secret.to_owned(), token: None }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("keys")
    }
}

/// Who has the buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    Amazon,
    Other(Url),
}

/// Where buckets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) endpoint: Endpoint,
    pub(super) region: String,
    /// Whether the bucket is in the name of the host; `None`: where that is usual.
    in_host: Option<bool>,
}

impl Place {
    /// Names the part of Amazon's S3 whose buckets have names of their own; empty for that of most.
    pub(super) fn partition(&self) -> &'static str {
        let known = ["cn-", "us-gov-", "us-iso-", "us-isob-", "eusc-"];
        let found = known.into_iter().find(|known| self.region.starts_with(known));
        found.filter(|_| self.endpoint == Endpoint::Amazon).unwrap_or_default()
    }

    /// Where the object of this path, which begins with a slash, is in `bucket`.
    pub(super) fn url(&self, bucket: &str, path: &str, query: Option<String>) -> Url {
        // What certificates and names of hosts allow.
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = bucket.bytes().all(is_plain);
        let (scheme, host, before) = match &self.endpoint {
            Endpoint::Amazon if self.region.starts_with("cn-") => {
                ("https", format!("s3.{}.amazonaws.com.cn", self.region), "")
            }
            Endpoint::Amazon => ("https", format!("s3.{}.amazonaws.com", self.region), ""),
            Endpoint::Other(url) => (url.scheme(), url.authority().to_owned(), url.path().trim_end_matches('/')),
        };
        if self.in_host.unwrap_or(self.endpoint == Endpoint::Amazon && is_name) {
            Url::of_parts(scheme, format!("{bucket}.{host}"), format!("{before}{path}"), query)
        } else {
            Url::of_parts(scheme, host, format!("{before}/{bucket}{path}"), query)
        }
    }
}

/// What the environment says. Files are read each time: somebody may have renewed what they have.
#[derive(Clone, Default)]
pub struct Aws {
    environment: BTreeMap<String, String>,
    config: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

impl fmt::Debug for Aws {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Aws").finish_non_exhaustive()
    }
}

/// One section of such a file. What is indented below a name has that name and a dot before its own.
type Section = BTreeMap<String, String>;

impl Aws {
    /// That of this process.
    pub fn of_environment() -> Self {
        let is_of_aws = |name: &String| name.starts_with("AWS_") || name.starts_with("FSSPEC_S3_");
        let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let environment: BTreeMap<_, _> = all
            .filter(|(name, value)| is_of_aws(name) && !value.is_empty())
            .filter_map(|(name, value)| Some((name, value.into_string().ok()?)))
            .collect();
        let file = |variable: &str, name: &str| {
            let named = environment.get(variable).map(PathBuf::from);
            let named = named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".aws").join(name)));
            named.filter(|path| path.is_absolute())
        };
        let config = file("AWS_CONFIG_FILE", "config");
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        Self { environment, config, credentials }
    }

    /// The files. The folder that Amazon's tools have for them as a whole, as they replace what is in it.
    pub(super) fn reads(&self) -> Vec<PathBuf> {
        let of = |path: &PathBuf| match path.parent() {
            Some(folder) if folder.file_name().is_some_and(|name| name == ".aws") => folder.to_owned(),
            _ => path.clone(),
        };
        [&self.config, &self.credentials].into_iter().flatten().map(of).filter(|path| path.exists()).collect()
    }

    /// What these variables say alone.
    #[cfg(test)]
    pub(super) fn of_variables(variables: &[(&str, &str)]) -> Self {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { environment, ..Self::default() }
    }

    fn variable(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.environment.get(*name)).cloned()
    }

    /// The profile that is named, if one is.
    fn named(&self) -> Option<String> {
        self.variable(&["FSSPEC_S3_PROFILE", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
    }

    /// What the file says of a profile, or of services.
    fn section(path: Option<&PathBuf>, names: &[String]) -> Section {
        let Some(path) = path else { return Section::new() };
        let is_short = path.metadata().is_ok_and(|found| found.is_file() && found.len() <= LONGEST);
        let text = if is_short { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
        let mut sections = sections(&text);
        names.iter().find_map(|name| sections.remove(name)).unwrap_or_default()
    }

    /// The profile in the file of settings.
    fn profile(&self) -> Section {
        let name = self.named().unwrap_or_else(|| "default".to_owned());
        // That one may also stand there without the word.
        let names = [format!("profile {name}"), if name == "default" { name } else { String::new() }];
        Self::section(self.config.as_ref(), &names)
    }

    /// Where buckets are. The error says what of it is of no use.
    pub(super) fn place(&self) -> Result<Place, String> {
        let profile = self.profile();
        let is_ignored = self.variable(&["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"]).is_some_and(|value| is_true(&value));
        let configured = || {
            let services = profile.get("services").map(|name| {
                Self::section(self.config.as_ref(), &[format!("services {name}")]).remove("s3.endpoint_url")
            });
            let of_variable = self.variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
            let of_profile = || ["s3.endpoint_url", "endpoint_url"].iter().find_map(|name| profile.get(*name)).cloned();
            of_variable.or_else(|| services.flatten()).or_else(of_profile)
        };
        let endpoint = self.variable(&["FSSPEC_S3_ENDPOINT_URL"]);
        let endpoint = endpoint.or_else(|| if is_ignored { None } else { configured() });
        let endpoint = match endpoint {
            None => Endpoint::Amazon,
            Some(text) => {
                let url = Url::parse(&text).map_err(|what| format!("the endpoint of S3 is no URL: {what}"))?;
                if !["http", "https"].contains(&url.scheme()) || url.has_secrets() {
                    return Err("the endpoint of S3 must be http:// or https://, a host, and perhaps a path".to_owned());
                }
                Endpoint::Other(url)
            }
        };
        let region = self.variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| profile.get("region").cloned());
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        if !super::is_region(&region) {
            return Err("the region of S3 is none (AWS_REGION, or region in ~/.aws/config)".to_owned());
        }
        let in_host = match profile.get("s3.addressing_style").map(String::as_str) {
            Some("path") => Some(false),
            Some("virtual") => Some(true),
            _ => None,
        };
        Ok(Place { endpoint, region, in_host })
    }

    /// Who asks: `None` if nobody is named, and everybody may. The error says what is wrong with what is named.
    pub(super) fn keys(&self) -> Result<Option<Keys>, String> {
        if let Some(value) = self.variable(&["FSSPEC_S3_ANON", "AWS_NO_SIGN_REQUEST"])
            && is_true(&value)
        {
            return Ok(None);
        }
        let of_variables = |id: &str, secret: &str, tokens: &[&str]| {
            let (id, secret) = (self.variable(&[id])?, self.variable(&[secret])?);
            Some(Keys { id, secret, token: self.variable(tokens) })
        };
        let fsspec = of_variables("FSSPEC_S3_KEY", "FSSPEC_S3_SECRET", &["FSSPEC_S3_TOKEN"]);
        let aws = || {
            let tokens = &["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"];
            of_variables("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", tokens)
        };
        if let Some(keys) = fsspec.or_else(aws) {
            return Self::usable(keys).map(Some);
        }
        let named = self.named();
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let profile = self.profile();
        for section in [&Self::section(self.credentials.as_ref(), &[name]), &profile] {
            if let (Some(id), Some(secret)) = (section.get("aws_access_key_id"), section.get("aws_secret_access_key")) {
                let token = section.get("aws_session_token").cloned();
                return Self::usable(Keys { token, ..Keys::new(id, secret) }).map(Some);
            }
        }
        let others = ["credential_process", "sso_session", "sso_start_url", "role_arn", "web_identity_token_file"];
        let other = others.iter().find(|name| profile.contains_key(**name));
        match (other, named) {
            (Some(other), _) => Err(format!(
                "the profile gets its keys by {other}, which is not followed: \
                 eval \"$(aws configure export-credentials --format env)\" puts them into the environment"
            )),
            (None, Some(_)) => Err("the profile that AWS_PROFILE names has no keys, or is not there".to_owned()),
            (None, None) => Ok(None),
        }
    }

    /// What stands in a header must be text of one line.
    fn usable(keys: Keys) -> Result<Keys, String> {
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_text(&keys.id) && keys.token.as_deref().is_none_or(is_text) {
            return Ok(keys);
        }
        Err("the access key or the session token of S3 has letters in it that none has".to_owned())
    }
}

fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|known| value.eq_ignore_ascii_case(known))
}

/// The sections of such a file, by name.
fn sections(text: &str) -> BTreeMap<String, Section> {
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let (mut section, mut above) = (None, String::new());
    for line in text.lines() {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            // A name may stand in quotes.
            section = Some(name.replace('"', ""));
            above.clear();
            continue;
        }
        let (Some(section), Some((name, value))) = (&section, line.split_once('=')) else { continue };
        let (name, value) = (name.trim_end(), value.trim_start());
        // A comment behind a value has a blank before it.
        let value = [" #", " ;"].iter().fold(value, |value, mark| value.split(mark).next().unwrap_or(value)).trim_end();
        let full = if is_indented && !above.is_empty() { format!("{above}.{name}") } else { name.to_owned() };
        if !is_indented {
            above = if value.is_empty() { name.to_owned() } else { String::new() };
        }
        sections.entry(section.clone()).or_default().insert(full, value.to_owned());
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aws(variables: &[(&str, &str)], config: &str, credentials: &str) -> (tempfile::TempDir, Aws) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let (config, credentials) = (write("config", config), write("credentials", credentials));
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        (folder, Aws { environment, config, credentials })
    }

    const CONFIG: &str = "\
# mine
[default]
region = eu-west-1
[profile minio]
region=us-west-2   # far
s3 =
    endpoint_url = http://localhost:9000/
    addressing_style = path
output = json
[profile sso]
sso_session = x
[profile of services]
services = here
[profile services]
services = here
[services here]
s3 =
  endpoint_url = https://s3.example.org
";

    const CREDENTIALS: &str = "\
[default]
aws_access_key_id = A
aws_secret_access_key = S/+=
[minio]
aws_access_key_id=M
aws_secret_access_key=N
aws_session_token=T
";

    #[test]
    fn a_bucket_is_where_the_settings_say() {
        let at = |variables: &[(&str, &str)], bucket: &str| {
            let (_folder, aws) = aws(variables, CONFIG, CREDENTIALS);
            aws.place().map(|place| place.url(bucket, "/a%20b", None).request())
        };
        assert_eq!(at(&[], "b").unwrap(), "https://b.s3.eu-west-1.amazonaws.com/a%20b");
        // No certificate is for a name with another dot.
        assert_eq!(at(&[], "b.c").unwrap(), "https://s3.eu-west-1.amazonaws.com/b.c/a%20b");
        assert_eq!(at(&[("AWS_REGION", "cn-north-1")], "b").unwrap(), "https://b.s3.cn-north-1.amazonaws.com.cn/a%20b");
        let partition = |region| aws(&[("AWS_REGION", region)], "", "").1.place().unwrap().partition();
        assert_eq!(["us-east-1", "cn-north-1", "us-gov-west-1"].map(partition), ["", "cn-", "us-gov-"]);
        assert_eq!(at(&[("AWS_PROFILE", "minio")], "b").unwrap(), "http://localhost:9000/b/a%20b");
        assert_eq!(at(&[("AWS_PROFILE", "services")], "b").unwrap(), "https://s3.example.org/b/a%20b");
        let both = [("AWS_ENDPOINT_URL", "http://no"), ("FSSPEC_S3_ENDPOINT_URL", "http://yes:1/x/")];
        assert_eq!(at(&both, "b").unwrap(), "http://yes:1/x/b/a%20b");
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "ftp://h"),
            ("AWS_ENDPOINT_URL", "http://me:secret@h"),
            ("AWS_ENDPOINT_URL", "h"),
            ("AWS_REGION", "../x"),
        ] {
            let error = at(&[(name, value)], "b").unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn keys_come_from_the_environment_and_then_from_the_files() {
        let of = |variables: &[(&str, &str)]| {
            let (_folder, aws) = aws(variables, CONFIG, CREDENTIALS);
            aws.keys().map(|keys| keys.map(|keys| format!("{} {} {:?}", keys.id, keys.secret, keys.token)))
        };
        assert_eq!(of(&[]).unwrap().unwrap(), "A S/+= None");
        assert_eq!(of(&[("AWS_PROFILE", "minio")]).unwrap().unwrap(), "M N Some(\"T\")");
        let variables = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F"), ("AWS_PROFILE", "minio")];
        assert_eq!(of(&variables).unwrap().unwrap(), "E F None");
        assert_eq!(of(&[("AWS_NO_SIGN_REQUEST", "YES")]).unwrap(), None);
        assert!(of(&[("AWS_PROFILE", "sso")]).unwrap_err().contains("sso_session"));
        assert!(of(&[("AWS_PROFILE", "none")]).unwrap_err().contains("AWS_PROFILE"));
        assert!(of(&[("AWS_ACCESS_KEY_ID", "E\r\nX: y"), ("AWS_SECRET_ACCESS_KEY", "F")]).is_err());
        let (_folder, nothing) = aws(&[], "", "");
        assert_eq!(nothing.keys().unwrap(), None);
    }
}
