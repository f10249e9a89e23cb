//! Writes all mutants of a file into one text, each behind a condition that the environment sets.

use std::ops::Range;

use crate::sites::{Shape, Site};

/// A mutant that can be switched on: its number, its place and its text.
#[derive(Clone, Copy, Debug)]
pub struct Switch<'s> {
    pub id: usize,
    pub site: &'s Site,
    pub replacement: &'s str,
}

/// A part of the new text that belongs to one mutant.
#[derive(Clone, Debug)]
pub struct Part {
    pub range: Range<usize>,
    pub id: usize,
    /// True for the text of the mutant alone, false for the whole expression or function around it.
    pub is_exact: bool,
}

/// The text of a file with its mutants.
#[derive(Debug)]
pub struct Instrumented {
    pub text: String,
    pub parts: Vec<Part>,
}

/// A text to insert at an offset: what closes an expression comes before what opens the next one.
struct Insertion {
    at: usize,
    is_opening: bool,
    /// The number of the site: an outer expression has a smaller one.
    order: usize,
    pieces: Vec<(Option<usize>, String)>,
}

impl Insertion {
    fn rank(&self) -> (usize, bool, isize) {
        let order = self.order as isize;
        (self.at, self.is_opening, if self.is_opening { order } else { -order })
    }
}

fn condition(id: usize) -> String {
    format!("crate::mutant({id})")
}

/// Returns the mutants of one site as insertions, with the range of the source that they are about.
fn insertions(
    text: &str,
    order: usize,
    site: &Site,
    switches: &[Switch<'_>],
) -> (Vec<Insertion>, Range<usize>) {
    let source = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
    let insert = |at, is_opening, pieces| Insertion { at, is_opening, order, pieces };
    // `if A { mutant } else if B { mutant } else { original }`
    let wrap = |whole: &Range<usize>, mutant: &dyn Fn(&Switch<'_>) -> String, before: &str| {
        let mut pieces = vec![(None, format!("{before}("))];
        for switch in switches {
            pieces.push((None, format!("if {} {{ ", condition(switch.id))));
            pieces.push((Some(switch.id), mutant(switch)));
            pieces.push((None, " } else ".to_owned()));
        }
        pieces.push((None, "{ (".to_owned()));
        (
            vec![
                insert(whole.start, true, pieces),
                insert(whole.end, false, vec![(None, ") })".to_owned())]),
            ],
            whole.clone(),
        )
    };
    match &site.shape {
        Shape::Body(at) => {
            let mut pieces = Vec::new();
            for switch in switches {
                pieces.push((None, format!("if {} {{ ", condition(switch.id))));
                pieces.push((Some(switch.id), format!("return {};", switch.replacement)));
                pieces.push((None, " } ".to_owned()));
            }
            (vec![insert(*at, true, pieces)], *at..*at)
        }
        Shape::Operator { whole, left, right } => wrap(
            whole,
            &|switch| format!("({} {} {})", source(left), switch.replacement, source(right)),
            "",
        ),
        Shape::Prefix { whole, operand } => wrap(whole, &|_| format!("({})", source(operand)), ""),
        Shape::Arm(at) => {
            let all: Vec<_> =
                switches.iter().map(|switch| format!("!{}", condition(switch.id))).collect();
            let piece =
                (switches.first().map(|switch| switch.id), format!(" if {} ", all.join(" && ")));
            (vec![insert(*at, true, vec![piece])], *at..*at)
        }
        Shape::Guard(range) => {
            let always = |value: &str| {
                let ids = switches.iter().filter(|switch| switch.replacement == value);
                ids.map(|switch| condition(switch.id)).collect::<Vec<_>>()
            };
            let mut open = "(".to_owned();
            always("true").iter().for_each(|condition| open += &format!("{condition} || "));
            let mut close = "))".to_owned();
            always("false").iter().for_each(|condition| close += &format!(" && !{condition}"));
            let open = vec![(None, format!("({open}("))];
            let close = vec![(None, format!("{close})"))];
            (vec![insert(range.start, true, open), insert(range.end, false, close)], range.clone())
        }
        Shape::Field { value, is_shorthand, rest } => {
            let name = site.key.original.as_str();
            let before = if *is_shorthand { format!("{name}: ") } else { String::new() };
            wrap(value, &|_| format!("({}).{name}", source(rest)), &before)
        }
    }
}

/// Returns the file's text with its mutants. `switches` are those of this file, in the order of its sites.
pub fn instrument(text: &str, switches: &[Switch<'_>]) -> Instrumented {
    let mut all = Vec::new();
    let mut wholes = Vec::new();
    for (order, group) in switches.chunk_by(|a, b| std::ptr::eq(a.site, b.site)).enumerate() {
        let Some(first) = group.first() else { continue };
        let (insertions, whole) = insertions(text, order, first.site, group);
        all.extend(insertions);
        wholes.extend(group.iter().map(|switch| (whole.clone(), switch.id)));
    }
    all.sort_by_key(Insertion::rank);
    let mut out = Instrumented { text: String::new(), parts: Vec::new() };
    let mut done = 0;
    let mut moved = vec![(0, 0)];
    for insertion in all {
        out.text += text.get(done..insertion.at).unwrap_or_default();
        done = insertion.at;
        for (id, piece) in insertion.pieces {
            let start = out.text.len();
            out.text += &piece;
            out.parts.extend(id.map(|id| Part {
                range: start..out.text.len(),
                id,
                is_exact: true,
            }));
        }
        moved.push((insertion.at, out.text.len() - insertion.at));
    }
    out.text += text.get(done..).unwrap_or_default();
    // Where the source that a mutant is about stands in the new text, for errors outside the mutant's own text.
    let shifted =
        |at: usize| at + moved.iter().rev().find(|(from, _)| *from < at).map_or(0, |(_, by)| *by);
    for (whole, id) in wholes {
        out.parts.push(Part {
            range: shifted(whole.start)..shifted(whole.end) + 1,
            id,
            is_exact: false,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::sites;

    /// Replaces each place of a file by its first replacement and returns the new text.
    fn all(text: &str, replacements: &[(&str, &[&str])]) -> String {
        let sites = sites("f.rs", text).expect("Rust");
        let mut switches = Vec::new();
        for site in sites.iter().filter(|site| !site.is_fixed) {
            let known = replacements.iter().find(|(original, _)| *original == site.key.original);
            for &replacement in known.map_or(&[][..], |(_, replacements)| replacements) {
                switches.push(Switch { id: switches.len(), site, replacement });
            }
        }
        let text = instrument(text, &switches).text;
        syn::parse_file(&text).expect("Rust");
        text.replace("crate::mutant", "m")
    }

    #[test]
    fn nested_expressions() {
        let text = all(
            "fn f(a: u8) -> bool { !a < 3 && a == 1 }",
            &[("bool", &["true"]), ("!", &[""]), ("<", &[">", "=="]), ("&&", &["||"])],
        );
        let not = "(if m(4) { (a) } else { (!a) })";
        let less =
            format!("(if m(2) {{ (!a > 3) }} else if m(3) {{ (!a == 3) }} else {{ ({not} < 3) }})");
        let and = format!("(if m(1) {{ (!a < 3 || a == 1) }} else {{ ({less} && a == 1) }})");
        assert_eq!(text, format!("fn f(a: u8) -> bool {{ if m(0) {{ return true; }} {and} }}"));
    }

    #[test]
    fn arms_guards_and_fields() {
        let text = all(
            "fn f() { match x { 1 => 2, n if n > 5 => T { n, ..t }, _ => 4 } }",
            &[("1", &[""]), ("n > 5", &["true", "false"]), ("n", &[""])],
        );
        let guard = "((m(1) || (n > 5)) && !m(2))";
        let field = "n: (if m(3) { (t).n } else { (n) })";
        assert_eq!(
            text,
            format!(
                "fn f() {{ match x {{ 1 if !m(0)  => 2, n if {guard} => T {{ {field}, ..t }}, _ => 4 }} }}"
            )
        );
    }

    #[test]
    fn constants_tests_and_chains_with_let_stay() {
        let text = "const A: u8 = 1 + 2; const fn f() -> u8 { 1 + 2 } fn g() { if let Some(x) = y && z {} }
            #[cfg(test)] mod tests { fn f() { 1 + 2 } } #[test] fn t() { 1 + 2 }";
        assert_eq!(all(text, &[("+", &["-"]), ("&&", &["||"]), ("u8", &["0"])]), text);
    }
}
