//! Draws flame graphs as SVG, of one profile or of the change between two.
//!
//! In a differential graph the width of a frame is its value now. The own value of red frames grew and that of blue
//! frames shrank, without the functions they call. Stacks that only the base has are not drawn.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::super::response::escape_html;
use crate::status::words::{bytes, count};

/// Values by stack: frames from the outermost to the innermost, joined by semicolons.
pub(crate) type Folded = BTreeMap<String, i64>;

/// The largest sum of values that is drawn. Up to here the drawing's integer arithmetic is exact.
const MAX_TOTAL: i64 = 1 << 53;

/// The reason why there is no graph.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrawError {
    /// The values are too large.
    #[error("the values are too large to draw")]
    TooLarge,
    /// The SVG could not be written.
    #[error("cannot draw the flame graph: {0}")]
    Svg(#[from] io::Error),
}

/// The text around a graph.
pub(crate) struct Caption<'a> {
    pub(crate) title: &'a str,
    pub(crate) subtitle: String,
    /// The unit of the values, as in pprof.
    pub(crate) unit: &'a str,
    /// The sentence for a profile without samples.
    pub(crate) empty: &'a str,
}

impl Caption<'_> {
    /// Draws the graph of one profile, or with `base` the differential graph.
    ///
    /// # Errors
    ///
    /// The values are too large, or the drawing failed.
    pub(crate) fn draw(&self, now: &Folded, base: Option<&Folded>) -> Result<Vec<u8>, DrawError> {
        let is_drawable = |stacks: &Folded| sum(stacks).is_some_and(|sum| sum <= MAX_TOTAL);
        if !is_drawable(now) || !base.is_none_or(is_drawable) {
            return Err(DrawError::TooLarge);
        }
        let before = |base: &Folded, stack: &str| base.get(stack).copied().unwrap_or(0).max(0);
        let line = |(stack, value): (&String, &i64)| match base {
            Some(base) => format!("{stack} {} {value}", before(base, stack)),
            None => format!("{stack} {value}"),
        };
        let lines: Vec<String> = now.iter().filter(|(_, value)| **value > 0).map(line).collect();
        if lines.is_empty() {
            return Ok(message(&[self.title, self.empty, &self.subtitle]));
        }
        let mut options = inferno::flamegraph::Options::default();
        options.title = self.title.to_owned();
        options.subtitle = Some(self.subtitle.clone());
        options.count_name = self.unit.to_owned();
        let (mut svg, lines) = (Vec::new(), lines.iter().map(String::as_str));
        inferno::flamegraph::from_lines(&mut options, lines, &mut svg)?;
        Ok(svg)
    }
}

/// Returns the sum of the positive values, `None` if it overflows.
pub(crate) fn sum(stacks: &Folded) -> Option<i64> {
    stacks.values().try_fold(0_i64, |sum, value| sum.checked_add((*value).max(0)))
}

/// The total and duration of a profile, for a comparison with another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) total: i64,
    pub(crate) duration: Option<Duration>,
}

impl Extent {
    /// Returns the factor for the values of `base` that makes them comparable: to the same total with `normalize`,
    /// otherwise to the same duration if the values are CPU time.
    pub(crate) fn scale(self, base: Self, unit: &str, normalize: bool) -> f64 {
        let ratio = |now: f64, base: f64| if now > 0.0 && base > 0.0 { now / base } else { 1.0 };
        match (self.duration, base.duration) {
            _ if normalize => ratio(self.total as f64, base.total as f64),
            (Some(now), Some(base)) if unit == "nanoseconds" => {
                ratio(now.as_secs_f64(), base.as_secs_f64())
            }
            _ => 1.0,
        }
    }
}

/// Describes the change from `base` to `now`.
pub(crate) fn change(base: i64, now: i64, unit: &str) -> String {
    let percent = match base {
        0 => String::new(),
        base => format!(" ({:+.1}%)", 100.0 * (now as f64 / base as f64 - 1.0)),
    };
    let legend = "red: more than in the base, blue: less";
    format!("base {}, now {}{percent}; {legend}", amount(base, unit), amount(now, unit))
}

/// Formats a value with its unit.
fn amount(value: i64, unit: &str) -> String {
    match unit {
        "nanoseconds" => format!("{:.2} s", value as f64 / 1e9),
        "bytes" => bytes(value as f64),
        unit => format!("{} {unit}", count(value.unsigned_abs())),
    }
}

/// The maximum length of a frame's name, in bytes.
const MAX_FRAME: usize = 1_024;

/// Returns a function name as a frame: cut at [`MAX_FRAME`], without the separator and without characters that XML
/// forbids.
pub(crate) fn frame(name: &str) -> String {
    let allowed = |letter: char| match letter {
        ';' => ':',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    let name = name.trim();
    match name.get(..name.floor_char_boundary(MAX_FRAME)).unwrap_or_default() {
        "" => "[unknown]".to_owned(),
        name => name.chars().map(allowed).collect(),
    }
}

/// Returns an SVG with these lines of text instead of a graph.
fn message(lines: &[&str]) -> Vec<u8> {
    let mut svg = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                   <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"110\">\n"
        .to_owned();
    for (at, line) in lines.iter().enumerate() {
        let (y, line) = (30 * (at + 1), escape_html(line));
        svg.push_str(&format!(
            "<text x=\"600\" y=\"{y}\" text-anchor=\"middle\" font-family=\"monospace\">{line}</text>\n"
        ));
    }
    svg.push_str("</svg>\n");
    svg.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(stacks: &[(&str, i64)]) -> Folded {
        stacks.iter().map(|(stack, value)| ((*stack).to_owned(), *value)).collect()
    }

    fn draw(now: &[(&str, i64)], base: Option<&[(&str, i64)]>) -> String {
        let subtitle = String::new();
        let caption = Caption { title: "CPU", subtitle, unit: "samples", empty: "a < b" };
        let svg = caption.draw(&folded(now), base.map(folded).as_ref()).expect("drawn");
        String::from_utf8(svg).expect("UTF-8")
    }

    #[test]
    fn a_planted_regression_is_red_and_what_shrank_is_blue() {
        let base = [("main;old", 60), ("main;same", 40)];
        let now = [("main;old", 30), ("main;same", 40), ("main;same;planted", 30)];
        let svg = draw(&now, Some(&base));
        let frame = |name: &str| {
            let title = format!("<title>{name} (");
            let (_, rest) = svg.split_once(&title).unwrap_or_else(|| panic!("{name} in {svg}"));
            let (title, rest) = rest.split_once("</title>").expect("title");
            let fill = rest.split_once("fill=\"rgb(").and_then(|(_, rest)| rest.split_once(')'));
            (title.to_owned(), fill.expect("color").0.to_owned())
        };
        // The largest change has the strongest color.
        assert_eq!(frame("planted"), ("30 samples, 30.00%; +30.00%)".into(), "255,100,100".into()));
        assert_eq!(frame("old"), ("30 samples, 30.00%; -30.00%)".into(), "100,100,255".into()));
        assert_eq!(frame("same"), ("70 samples, 70.00%; 0.00%)".into(), "250,250,250".into()));
    }

    #[test]
    fn an_empty_graph_is_a_sentence() {
        for base in [None, Some(&[("main", 1)][..])] {
            let svg = draw(&[("main", 0)], base);
            assert!(svg.contains("<svg") && svg.contains("a &lt; b"), "{svg}");
        }
    }

    #[test]
    fn values_beyond_exact_arithmetic_are_refused() {
        let caption = Caption { title: "", subtitle: String::new(), unit: "", empty: "" };
        for huge in [&[("a", MAX_TOTAL + 1)][..], &[("a", i64::MAX), ("b", i64::MAX)]] {
            let (huge, small) = (folded(huge), folded(&[("a", 1)]));
            for (now, base) in [(&huge, None), (&small, Some(&huge)), (&huge, Some(&small))] {
                let error = caption.draw(now, base).expect_err("too large");
                assert!(matches!(error, DrawError::TooLarge));
            }
        }
    }

    #[test]
    fn a_base_is_scaled_to_the_duration_of_cpu_time_or_to_the_total() {
        let extent =
            |total, seconds| Extent { total, duration: Some(Duration::from_secs(seconds)) };
        let (now, base) = (extent(50, 10), extent(200, 30));
        for (unit, normalize, scale) in [
            ("nanoseconds", false, 1.0 / 3.0),
            ("nanoseconds", true, 0.25),
            ("bytes", false, 1.0),
            ("bytes", true, 0.25),
        ] {
            assert!((now.scale(base, unit, normalize) - scale).abs() < 1e-12, "{unit} {normalize}");
        }
        assert_eq!(now.scale(extent(0, 0), "nanoseconds", true), 1.0);
    }

    #[test]
    fn frames_have_no_separators_and_no_control_characters() {
        for (name, expected) in
            [("a;b", "a:b"), ("a\u{1}\nb", "a\u{fffd}\u{fffd}b"), (" ", "[unknown]"), ("é", "é")]
        {
            assert_eq!(frame(name), expected);
        }
        assert_eq!(frame(&"é".repeat(MAX_FRAME)).len(), MAX_FRAME);
    }
}
