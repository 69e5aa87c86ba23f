use super::*;

/// Names, whether they are folders, sizes, and whether these are told to the byte.
type Found = Vec<(String, bool, u64, bool)>;

fn found(page: &str, url: &str) -> Found {
    let entries = links(page, &Url::parse(url).unwrap()).0.into_iter();
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let of = |link: Link| (text(&link.entry.name), link.entry.is_folder, link.entry.size, link.is_exact);
    entries.map(of).collect()
}

fn names(page: &str, url: &str) -> Vec<String> {
    found(page, url).into_iter().map(|(name, is_folder, ..)| if is_folder { name + "/" } else { name }).collect()
}

#[test]
fn links_to_what_lies_in_a_folder_are_found() {
    let url = Url::parse("http://host:1/a%20b/").unwrap();
    let page = "<html><h1>Index of /a b/</h1><pre><a href=\"../\">../</a>\n\
        <a href=\"c/\">c/</a>   28-Nov-2026 01:02       -\n\
        <A HREF='d%20e.tar'>d e.tar</a>  28-Nov-2026 01:02     1234\r\n\
        <a class=x href=\"/a%20b/f&amp;g\">f</a> 2026-11-28 01:02  1.2M\n\
        <a href=\"?C=N;O=D\">Name</a> <a href=\"http://other/a%20b/h\">h</a> <a href=\"/x\">x</a>\n\
        <a href=\"./i%2Fj\">i/j</a> <a href=\"k/l\">k</a> <a href=\"c/\">again</a> <a href=.>.</a>\n\
        <a href=\"m%FF\">m</a> <a href='#top'>top</a><a href='mailto:me@host'>me</a> <a href=\"%2e%2e\">up</a>";
    let found: Vec<_> = links(page, &url)
        .0
        .into_iter()
        .map(|link| (link.entry.name, link.entry.is_folder, link.entry.size, link.is_exact))
        .collect();
    let of = |name: &[u8], is_folder, size, is_exact| (name.to_vec(), is_folder, size, is_exact);
    assert_eq!(
        found,
        [
            of(b"c", true, 0, true),
            of(b"d e.tar", false, 1234, true),
            of(b"f&g", false, 0, false),
            of(b"m\xff", false, 0, false),
        ]
    );
    assert_eq!(url.child(b"m\xff", true).request(), "http://host:1/a%20b/m%FF/");
}

/// As `mod_autoindex` of Apache 2.4 writes it, with `IndexOptions FancyIndexing HTMLTable`.
#[test]
fn pages_of_apache_are_read() {
    let page = r#"<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">
<html>
 <head>
  <title>Index of /logs</title>
 </head>
 <body>
<h1>Index of /logs</h1>
  <table>
   <tr><th valign="top"><img src="/icons/blank.gif" alt="[ICO]"></th><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th><th><a href="?C=S;O=A">Size</a></th></tr>
   <tr><th colspan="4"><hr></th></tr>
<tr><td valign="top"><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/">Parent Directory</a></td><td>&nbsp;</td><td align="right">  - </td></tr>
<tr><td valign="top"><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="./log-10:00:00.txt">log-10:00:00.txt</a></td><td align="right">2026-11-28 01:02  </td><td align="right"> 12K</td></tr>
<tr><td valign="top"><img src="/icons/text.gif" alt="[TXT]"></td><td><a href="plain.txt">plain.txt</a></td><td align="right">2026-11-28 01:02  </td><td align="right">  6 </td></tr>
<tr><td valign="top"><img src="/icons/folder.gif" alt="[DIR]"></td><td><a href="gtk+3.0%20%26%20more/">gtk+3.0 &amp; more/</a></td><td align="right">2026-11-28 01:02  </td><td align="right">  - </td></tr>
   <tr><th colspan="4"><hr></th></tr>
</table>
<address>Apache/2.4.66 (Unix) Server at host Port 80</address>
</body></html>
"#;
    assert_eq!(names(page, "http://host/logs/"), ["log-10:00:00.txt", "plain.txt", "gtk+3.0 & more/"]);
}

/// As `http.FileServer` of Go writes it.
#[test]
fn pages_of_go_are_read() {
    let page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
        <a href=\"./10:00.txt\">10:00.txt</a>\n<a href=\"./log-10:00.txt\">log-10:00.txt</a>\n\
        <a href=\"a%20b&amp;amp;.txt\">a b&amp;amp;.txt</a>\n\
        <a href=\"it&#39;s.txt\">it&#39;s.txt</a>\n<a href=\"libstdc++/\">libstdc++/</a>\n</pre>\n";
    let expected = ["10:00.txt", "log-10:00.txt", "a b&amp;.txt", "it's.txt", "libstdc++/"];
    assert_eq!(names(page, "http://host:8080/"), expected);
}

/// As `browse` of Caddy 2 writes it: all through `html/template`.
#[test]
fn pages_of_caddy_are_read() {
    let page = r##"<header>
    <div class="breadcrumbs">Folder Path</div>
    <h1>
        <a href="../">/</a><a href="./">caddy/</a>
    </h1>
</header>
<tr class="file">
    <td></td>
    <td>
        <a href="./libstdc&#43;&#43;.txt">
            <svg><use xlink:href="#file"></use></svg>
            <span class="name">libstdc&#43;&#43;.txt</span>
        </a>
    </td>
    <td class="size" data-size="6"><div class="sizebar"></div></td>
    <td class="timestamp"><time datetime="2026-11-28T01:02:03Z">11/28/2026 01:02:03 AM +00:00</time></td>
</tr>
<tr class="file"><td><a href="./a%22b&#34;&#x26;c/"><span class="name">x</span></a></td></tr>
<footer>Served with <a rel="noopener noreferrer" href="https://caddyserver.com">Caddy</a></footer>
"##;
    assert_eq!(names(page, "http://host/caddy/"), ["libstdc++.txt", "a\"b\"&c/"]);
}

/// Jetty and others have whole paths in their links, and escape fewer letters than is done here.
#[test]
fn links_that_are_whole_paths_are_compared_by_names() {
    let page = "<table class=\"listing\">\n<tbody>\n\
        <tr><td class=\"name\"><a href=\"/jetty/\">Parent Directory</a></td><td></td></tr>\n\
        <tr><td class=\"name\"><a href=\"/jetty/gtk+3.0/a.txt\">a.txt&nbsp;</a></td><td class=\"size\">6 bytes&nbsp;</td></tr>\n\
        <tr><td class=\"name\"><a href=\"/jetty/gtk%2b3.0/b(1),@&amp;=!'.txt\">b</a></td></tr>\n\
        <tr><td class=\"name\"><a href=\"/jetty/gtk+3.0/c%3b/\">c;/</a></td></tr></tbody></table>";
    for url in ["http://host/jetty/gtk%2B3.0/", "http://host/jetty/gtk+3.0/", "http://host/jetty/gtk+3.0"] {
        assert_eq!(names(page, url), ["a.txt", "b(1),@&=!'.txt", "c;/"], "{url}");
    }
}

/// As IIS writes it.
#[test]
fn pages_of_iis_are_read() {
    let page = "<html><head><title>host - /Program Files (x86)/</title></head><body><H1>host - /Program Files (x86)/</H1>\
        <hr>\r\n\r\n<pre><A HREF=\"/\">[To Parent Directory]</A><br><br>\
        11/28/2026  1:02 AM            6 <A HREF=\"/Program%20Files%20(x86)/a+b.txt\">a+b.txt</A><br>\
        11/28/2026  1:02 AM        &lt;dir&gt; <A HREF=\"/Program%20Files%20(x86)/Common/\">Common</A><br>\
        </pre><hr></body></html>";
    let url = Url::parse("http://host/").unwrap().child(b"Program Files (x86)", true);
    assert_eq!(names(page, &url.request()), ["a+b.txt", "Common/"]);
}

/// As `autoindex` of nginx writes it: with a colon escaped, and sizes to the byte.
#[test]
fn pages_of_nginx_are_read() {
    let page = "<html>\r\n<head><title>Index of /n/</title></head>\r\n<body>\r\n<h1>Index of /n/</h1><hr><pre>\
        <a href=\"../\">../</a>\r\n\
        <a href=\"sub+dir/\">sub+dir/</a>                                           28-Nov-2026 01:02                   -\r\n\
        <a href=\"log-10%3A00.txt\">log-10:00.txt</a>                                      28-Nov-2026 01:02                 123\r\n\
        </pre><hr></body>\r\n</html>\r\n";
    let of = |name: &str, is_folder, size| (name.to_owned(), is_folder, size, true);
    assert_eq!(found(page, "http://host/n/"), [of("sub+dir", true, 0), of("log-10:00.txt", false, 123)]);
}

#[test]
fn tags_are_those_of_html() {
    for (page, names_in_it) in [
        ("<a title=\"a > b\" href=\"x\">x</a>", vec!["x"]),
        ("<a data-href=\"y\" href = 'x' >x</a>", vec!["x"]),
        ("<a data-href=\"y\">x</a>", vec![]),
        ("<a\thref=x>x</a><A\nHREF=y/>y</A>", vec!["x", "y/"]),
        ("<a title=it's href=x>x</a>", vec!["x"]),
        ("<a href=\"x\" href=\"y\">x</a>", vec!["x"]),
        ("<a <a href=x>x</a>", vec!["x"]),
        ("<abbr href=x><a>x</a><a hrefx=y>", vec![]),
        ("<a href=\" x \">x</a>", vec!["x"]),
        ("<a href=x", vec![]),
        ("<base target=_top><base href=\"/d/e/\"><a href=x>x</a><a href=/d/y>y</a>", vec!["y"]),
        ("<base href=\"http://host/d/\"><a href=x>x</a>", vec!["x"]),
        ("<base href=\"http://other/d/\"><a href=x>x</a>", vec![]),
    ] {
        assert_eq!(names(page, "http://host/d/"), names_in_it, "{page}");
    }
}

#[test]
fn references_are_undone_once() {
    for (written, text) in [
        ("a&amp;lt;b", "a&lt;b"),
        ("&#38;lt;&#x26;#43;", "&lt;&#43;"),
        ("&lt;&gt;&quot;&apos;&#39;&#X27;&#34;", "<>\"'''\""),
        ("&#228;&#x1F600;", "\u{e4}\u{1f600}"),
        ("a&b;c&;&#;&#x;&#+43;&#0;&#xd800;&#99999999999999;&", "a&b;c&;&#;&#x;&#+43;&#0;&#xd800;&#99999999999999;&"),
        ("\u{e4}&\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4};", "\u{e4}&\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4};"),
    ] {
        assert_eq!(text_of(written), text, "{written}");
    }
}

/// > A page with links of which none leads to something in the folder is an error, and no empty folder.
#[test]
fn a_page_about_something_else_is_no_empty_folder() {
    let is_elsewhere = |page| {
        let (links, is_elsewhere) = links(page, &Url::parse("http://host/d/e/").unwrap());
        assert!(links.is_empty());
        is_elsewhere
    };
    for other in ["<a href=/x>x</a>", "<a href=/d/x/>x</a>", "<a href='f/g'>g</a>", "<a href=../x>x</a>"] {
        assert!(is_elsewhere(other), "{other}");
    }
    let empty = "<a href=../>..</a><a href='/'>/</a><a href=/d>d</a><a href=./>.</a><a href=''></a><a href=/d/e>e</a>\
        <a href='?C=N'>Name</a><a href=/x?y>x</a><a href=#top>top</a><a href=http://other/x>x</a><a href=mailto:me>me</a>";
    assert!(!is_elsewhere(empty));
}

#[test]
fn no_byte_of_a_page_is_looked_at_for_two_links() {
    let repeated = "<a ".repeat(100_000) + ">";
    let open = "<a href=x>".repeat(100_000);
    let letters = format!("<a {}<a href=b>b</a>", "\u{e4}".repeat(LONGEST_TAG));
    let quotes = format!("{}<a href=b>b</a>", "<a x='<a y=\"".repeat(100_000));
    let none = "<a x='".to_owned() + &"<a ".repeat(100_000);
    let pages = [&repeated, &open, &letters, &quotes, &none];
    for page in pages {
        let bytes: usize = tags(page, "a").map(|(href, text)| href.map_or(0, str::len) + text.len()).sum();
        assert!(bytes <= page.len(), "{bytes}");
    }
    let url = Url::parse("http://host/").unwrap();
    let counts = pages.map(|page| links(page, &url).0.len());
    assert_eq!(counts, [0, 1, 1, 1, 0]);
}
