//! Time series: medians, comparison of their ends, and plots.

use std::fmt::Write as _;
use std::time::Duration;

/// Returns the median; 0 without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// Returns the quantile of this rank; 0 without values.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values = Vec::from_iter(values);
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// A value with its time since the start.
pub type Point = (Duration, f64);

/// Returns the medians of the first and the last sixth of the points after `warm_up`.
pub fn ends(points: &[Point], warm_up: Duration) -> (f64, f64) {
    let points = Vec::from_iter(points.iter().filter(|(at, _)| *at >= warm_up));
    let sixth = points.len().div_ceil(6);
    let values = |part: &[&Point]| median(part.iter().map(|(_, value)| *value));
    let first = points.get(..sixth).map(values);
    let last = points.get(points.len().saturating_sub(sixth)..).map(values);
    (first.unwrap_or_default(), last.unwrap_or_default())
}

/// Width and height of a plot.
const PICTURE: (f64, f64) = (760.0, 240.0);
const MARGIN: (f64, f64) = (64.0, 28.0);
/// Maximum number of points in a line; of those in between the largest is drawn.
const RESOLUTION: usize = 300;

/// One line of a plot.
pub struct Line<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its colour.
    pub colour: &'a str,
    /// Its points.
    pub points: &'a [Point],
}

/// Plots lines from 0 upwards as SVG; `marks` are times with a thin vertical line.
pub fn picture(title: &str, unit: &str, lines: &[Line<'_>], marks: &[Duration]) -> String {
    let all = || lines.iter().flat_map(|line| line.points);
    let end = all().map(|(at, _)| at.as_secs_f64()).fold(1.0, f64::max);
    let top = ceiling(all().map(|(_, value)| *value).fold(0.0, f64::max));
    let ((width, height), (left, below)) = (PICTURE, MARGIN);
    let (right, above) = (width - 12.0, 30.0);
    let x = |at: Duration| left + (right - left) * at.as_secs_f64() / end;
    let y = |value: f64| height - below - (height - below - above) * value / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{left}\" y=\"18\" font-size=\"13\">{title}</text>\n"
    );
    // Writing to a string cannot fail.
    for mark in marks {
        let at = x(*mark);
        let _ =
            writeln!(svg, "<path d=\"M{at:.1} {above}V{:.1}\" stroke=\"#ddd\"/>", height - below);
    }
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#999\" stroke-width=\".4\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value} {unit}</text>",
            left - 6.0,
            at + 4.0
        );
        let at = Duration::from_secs_f64(end * f64::from(step) / 4.0);
        let anchor = if step == 4 { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{:.0} s</text>",
            x(at),
            height - 10.0,
            at.as_secs_f64()
        );
    }
    let mut legend = right;
    for Line { name, colour, points } in lines.iter().rev() {
        let per_point = points.len().div_ceil(RESOLUTION).max(1);
        let mut path = String::new();
        for part in points.chunks(per_point) {
            let largest = part.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((at, value)) = largest else { continue };
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(*at), y(*value));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>\
             <text x=\"{legend:.0}\" y=\"18\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>"
        );
        legend -= 16.0 + 6.0 * name.len() as f64;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the next of 1, 2, 4, 8, 10 … that is not smaller; quarters of it are short numbers.
fn ceiling(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|top| *top >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        values.iter().zip(0..).map(|(value, at)| (Duration::from_secs(at), *value)).collect()
    }

    #[test]
    fn what_grows_has_different_ends() {
        let level = points(&[9.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
        assert_eq!(ends(&level, Duration::from_secs(1)), (5.0, 5.0));
        let grows = points(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ends(&grows, Duration::ZERO), (1.0, 6.0));
        assert_eq!(ends(&[], Duration::ZERO), (0.0, 0.0));
    }

    #[test]
    fn quarters_of_a_ceiling_are_short() {
        for (value, top) in [(0.3, 0.4), (7.9, 8.0), (81.0, 100.0), (100.0, 100.0), (130.0, 200.0)]
        {
            assert!((ceiling(value) - top).abs() < 1e-9, "{value}: {}", ceiling(value));
        }
    }
}
