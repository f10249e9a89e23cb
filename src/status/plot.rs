//! Sparklines of the last hour as SVG without text; the legend is HTML.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::history::Track;

/// The minimum number of values across the chart, so that a new process does not look like an old
/// one.
const MIN_SPAN: usize = 21;

/// Returns the number of values across the chart.
pub(super) fn span(tracks: &[&Track]) -> usize {
    tracks.iter().map(|track| track.values.len()).max().unwrap_or(0).max(MIN_SPAN)
}

/// Draws tracks on top of each other, scaled from 0 to `top`. Shorter tracks are aligned to the
/// right.
pub(super) fn lines(class: &str, height: u32, top: f32, tracks: &[&Track]) -> Markup {
    let span = span(tracks);
    let view = format!("0 0 {} {height}", span - 1);
    html! {
        svg class=(class) viewBox=(view) preserveAspectRatio="none" aria-hidden="true" {
            @for (number, track) in tracks.iter().enumerate() {
                path class={ "l" (number) } d=(PreEscaped(path(track, span, height, top))) {}
            }
        }
    }
}

/// Returns the SVG path. A missing value interrupts the line; a single value is a short dash.
fn path(track: &Track, span: usize, height: u32, top: f32) -> String {
    let first = span.saturating_sub(track.values.len());
    let scale = if top > 0.0 { (height as f32 - 2.0) / top } else { 0.0 };
    let mut out = String::new();
    let mut down = false;
    for (at, value) in track.values.iter().enumerate() {
        let Some(value) = value else {
            down = false;
            continue;
        };
        let (x, y) = (first + at, height as f32 - 1.0 - value.clamp(0.0, top) * scale);
        // Writing to a String cannot fail.
        let _ = match down {
            true => write!(out, "L{x} {y:.1}"),
            false => write!(out, "M{x} {y:.1}h.5"),
        };
        down = true;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_not_drawn() {
        let values = vec![Some(0.0), Some(5.0), None, Some(10.0)];
        let track = Track { what: "x", of: String::new(), values };
        assert_eq!(path(&track, 21, 12, 10.0), "M17 11.0h.5L18 6.0M20 1.0h.5");
        let none = Track { values: vec![Some(0.0), None], ..track };
        assert_eq!(path(&none, 21, 12, 0.0), "M19 11.0h.5");
    }
}
