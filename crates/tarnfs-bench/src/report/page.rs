//! A report as one HTML page, which needs no script, and follows the reader's wish for dark or light.

use std::fmt::Write;

use super::words::{Shown, heading};
use super::{Part, Report, Table};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --line: #d8d8d8; --soft: #f4f4f4; --link: #0b57a4 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181b; --line: #3a3d42; --soft: #202328; --link: #8ab8f0 } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem }
a { color: var(--link) } h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem }
code { background: var(--soft); padding: .1rem .3rem; overflow-wrap: anywhere }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th { vertical-align: bottom } .label { text-align: left } tbody tr:hover { background: var(--soft) }
figure { margin: 1.5rem 0 } svg { color: var(--ink); max-width: 100%; height: auto }
.small { font-size: .85rem; opacity: .85; margin: .3rem 0 }";

/// `text` where HTML stands.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn table(page: &mut String, table: &Table) {
    let shown = Shown::new(table);
    let cells = |tag: &str, words: &[String]| {
        let cell = |(at, word): (usize, &String)| {
            let class = if at < table.labels.len() { " class=\"label\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", plain(word))
        };
        format!("<tr>{}</tr>\n", words.iter().enumerate().map(cell).collect::<String>())
    };
    let headings: Vec<_> = table.labels.iter().cloned().chain(table.columns.iter().map(heading)).collect();
    let _ = write!(page, "<h2>{}</h2>\n<div class=\"wide\"><table><thead>\n", plain(&table.title));
    page.push_str(&cells("th", &headings));
    page.push_str("</thead><tbody>\n");
    shown.rows.iter().for_each(|row| page.push_str(&cells("td", row)));
    page.push_str("</tbody></table></div>\n");
    for reason in shown.reasons {
        let _ = writeln!(page, "<p class=\"small\">{}</p>", plain(&reason));
    }
    let _ = writeln!(page, "<p class=\"small\"><a href=\"{0}.tsv\">{0}.tsv</a></p>", plain(&table.name));
}

/// The page. `picture` draws a plot as SVG that stands in a page.
pub(super) fn html(report: &Report, mut picture: impl FnMut(&super::Plot) -> String) -> String {
    let title = plain(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>\n{STYLE}\n</style>\
         </head><body>\n<h1>{title}</h1>\n<p><code>{}</code></p>\n",
        plain(&report.command)
    );
    for part in &report.parts {
        match part {
            Part::Table(part) => table(&mut page, part),
            Part::Plot(plot) => {
                let name = plain(&plot.name);
                let _ = writeln!(
                    page,
                    "<figure>{}<figcaption class=\"small\"><a href=\"{name}.svg\">SVG</a> \
                     <a href=\"{name}.png\">PNG</a></figcaption></figure>",
                    picture(plot)
                );
            }
        }
    }
    page.push_str("<h2>How it was measured</h2>\n<ul>\n");
    for line in report.about() {
        let _ = writeln!(page, "<li>{}</li>", plain(&line));
    }
    page.push_str(
        "</ul>\n<p class=\"small\">Each figure is the median of the runs; behind it is half of what lies between the \
         smallest and the largest. All of it: <a href=\"report.json\">report.json</a>, \
         <a href=\"report.md\">report.md</a></p>\n</body></html>\n",
    );
    page
}
