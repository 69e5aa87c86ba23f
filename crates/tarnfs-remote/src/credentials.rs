//! Who logs in where: from the URL, or from `.netrc`.

use std::fmt;
use std::path::PathBuf;

/// A user and the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user.
    pub user: String,
    /// It is not shown where the login is.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a login")
    }
}

/// Where logins are looked up that no URL names.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    netrc: Option<PathBuf>,
    webdav: Option<Login>,
}

/// A `.netrc` that is longer is none.
const LONGEST: u64 = 1 << 20;

impl Credentials {
    /// Those of the environment: the file that `NETRC` names, else `.netrc` in the home folder; and those for WebDAV.
    pub fn of_environment() -> Self {
        let named = std::env::var_os("NETRC").map(PathBuf::from);
        let netrc = named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".netrc")));
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let webdav = variable("WEBDAV_USER").zip(variable("WEBDAV_PASSWORD"));
        let webdav = webdav.map(|(user, password)| Login { user, password });
        Self { netrc: netrc.filter(|path| path.is_absolute()), webdav }
    }

    /// The file that they are read from, if there is one.
    pub fn file(&self) -> Option<&PathBuf> {
        self.netrc.as_ref().filter(|path| path.is_file())
    }

    /// The login for WebDAV: of the variables `WEBDAV_USER` and `WEBDAV_PASSWORD`, else for the `host`.
    pub(crate) fn of_webdav(&self, host: &str) -> Option<Login> {
        self.webdav.clone().or_else(|| self.of_host(host))
    }

    /// The login for `host`. The file is read each time: it may have been changed.
    pub(crate) fn of_host(&self, host: &str) -> Option<Login> {
        let path = self.file()?;
        let is_short = path.metadata().is_ok_and(|found| found.len() <= LONGEST);
        let text = std::fs::read_to_string(path).ok().filter(|_| is_short)?;
        of_netrc(&text, host)
    }
}

/// What a `.netrc` has for `host`, else its `default`.
fn of_netrc(text: &str, host: &str) -> Option<Login> {
    let mut words = Words(text);
    // Of which machine the words are that come next: the host, all that have none, or another one.
    let (mut is_host, mut is_default) = (false, false);
    let (mut of_host, mut of_default) = ((None, None), (None, None));
    while let Some(word) = words.key() {
        match word.as_str() {
            "machine" => {
                is_default = false;
                // The first entry of a host counts.
                is_host = words.value()?.eq_ignore_ascii_case(host) && of_host.0.is_none();
            }
            "default" => (is_host, is_default) = (false, true),
            "macdef" => words.skip_macro(),
            name @ ("login" | "password" | "account") => {
                let value = words.value()?;
                let login = match (is_host, is_default) {
                    (true, _) => &mut of_host,
                    (_, true) => &mut of_default,
                    _ => continue,
                };
                match name {
                    "login" => login.0 = Some(value),
                    "password" => login.1 = Some(value),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let (user, password) = if of_host.0.is_some() { of_host } else { of_default };
    Some(Login { user: user?, password: password.unwrap_or_default() })
}

/// Words of a `.netrc`: with blanks between them, some in quotes, and comments.
struct Words<'a>(&'a str);

impl Words<'_> {
    /// A macro ends at an empty line.
    fn skip_macro(&mut self) {
        self.0 = self.0.split_once("\n\n").map_or("", |(_, rest)| rest);
    }

    /// The next word that says what comes behind it. A comment may stand before it.
    fn key(&mut self) -> Option<String> {
        self.0 = self.0.trim_start();
        while self.0.starts_with('#') {
            self.0 = self.0.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
        }
        self.value()
    }

    /// The next word, whatever it begins with: a password may begin with any letter.
    fn value(&mut self) -> Option<String> {
        self.0 = self.0.trim_start();
        let is_quoted = self.0.starts_with('"');
        let (mut word, mut escaped, mut end) = (String::new(), false, self.0.len());
        for (at, letter) in self.0.char_indices().skip(usize::from(is_quoted)) {
            if escaped {
                word.push(letter);
                escaped = false;
            } else if is_quoted && letter == '\\' {
                escaped = true;
            } else if (is_quoted && letter == '"') || (!is_quoted && letter.is_whitespace()) {
                end = at + letter.len_utf8();
                break;
            } else {
                word.push(letter);
            }
        }
        let is_end = self.0.is_empty();
        self.0 = &self.0[end..];
        (!is_end).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_a_host_is_found() {
        let text = "# mine\nmachine a.org login me password \"se \\\"cret\"\nmacdef init\nmachine b.org login no\n\n\
                    machine b.org\n  login you\n  account x\n  password p\nmachine b.org login late\n\
                    default login anonymous password guest\n";
        let of = |host| of_netrc(text, host).map(|login| (login.user, login.password));
        let login = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(of("A.org"), login("me", "se \"cret"));
        assert_eq!(of("b.org"), login("you", "p"));
        assert_eq!(of("c.org"), login("anonymous", "guest"));
        assert_eq!(of_netrc("machine a.org login me password x", "c.org"), None);
        assert_eq!(of_netrc("machine a.org login", "a.org"), None);
        let text = "machine a.org login #u password #p1 # mine\n#machine b.org login no\nmachine b.org\n\
                    # of b.org\nlogin u account # password \"#p 2\"";
        let of = |host| of_netrc(text, host).map(|login| (login.user, login.password));
        assert_eq!((of("a.org"), of("b.org")), (login("#u", "#p1"), login("u", "#p 2")));
        assert_eq!(format!("{:?}", of_netrc(text, "b.org")), "Some(a login)");
    }
}
