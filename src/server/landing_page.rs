//! The landing page at `/`, with links to the paths of the listener.

use super::response::escape_html;

/// Address, name and description of a link.
pub type Link<'a> = [&'a str; 3];

/// Renders the page. `title` is also the heading; `about` contains one paragraph per line;
/// `version` is shown below it.
pub fn page(title: &str, about: &str, version: &str, links: &[Link<'_>]) -> String {
    let mut items = String::new();
    for [href, name, about] in links.iter().map(|link| link.map(escape_html)) {
        items.push_str(&format!("<li><a href=\"{href}\">{name}</a> {about}</li>\n"));
    }
    let about: String =
        about.lines().map(|line| format!("<p>{}</p>\n", escape_html(line))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font-family:sans-serif;max-width:42em;margin:2em auto;padding:0 1em;\
         line-height:1.5}}h1{{margin-bottom:0}}p.version{{opacity:.75;margin-top:0}}</style>\n\
         </head>\n<body>\n<h1>{title}</h1>\n<p class=\"version\">{version}</p>\n{about}\
         <ul>\n{items}</ul>\n</body>\n</html>\n",
        title = escape_html(title),
        version = escape_html(version),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_escaped() {
        let links = [["/m\"x", "<b>", "a & b"]];
        let page = page("StatsD Exporter", "about", "v1", &links);
        assert!(page.contains("<title>StatsD Exporter</title>"));
        assert!(page.contains("<h1>StatsD Exporter</h1>"));
        assert!(page.contains("<a href=\"/m&#34;x\">&lt;b&gt;</a> a &amp; b"));
    }
}
