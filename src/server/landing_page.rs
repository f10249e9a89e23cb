//! The landing page at `/`, with links to the paths of the listener.

use super::response::escape_html;

/// A link on the page.
#[derive(Clone, Debug)]
pub struct Link {
    /// The path on this listener.
    pub href: String,
    /// The name.
    pub name: String,
    /// A description.
    pub about: String,
}

impl Link {
    /// Creates a link with a name and a description.
    pub fn new(href: &str, name: &str, about: &str) -> Self {
        Self { href: href.to_owned(), name: name.to_owned(), about: about.to_owned() }
    }
}

/// Renders the page. `title` is also the heading; `about` contains one paragraph per line;
/// `version` is shown below it.
pub fn page(title: &str, about: &str, version: &str, links: &[Link]) -> String {
    let mut items = String::new();
    for link in links {
        items.push_str(&format!(
            "<li><a href=\"{}\">{}</a> {}</li>\n",
            escape_html(&link.href),
            escape_html(&link.name),
            escape_html(&link.about)
        ));
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
        let links = [Link::new("/m\"x", "<b>", "a & b")];
        let page = page("StatsD Exporter", "about", "v1", &links);
        assert!(page.contains("<title>StatsD Exporter</title>"));
        assert!(page.contains("<h1>StatsD Exporter</h1>"));
        assert!(page.contains("<a href=\"/m&#34;x\">&lt;b&gt;</a> a &amp; b"));
    }
}
