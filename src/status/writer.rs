//! Lines and tables for a terminal.

use std::fmt::Write as _;

use super::words::printable;

/// A text buffer that escapes terminal control characters.
#[derive(Debug, Default)]
pub(crate) struct Writer(String);

impl Writer {
    /// Returns the text.
    pub(crate) fn text(self) -> String {
        self.0
    }

    /// Appends a line, indented by `depth` levels.
    pub(crate) fn line(&mut self, depth: usize, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{:1$}{2}", "", 2 * depth, printable(text));
    }

    /// Starts a section.
    pub(crate) fn heading(&mut self, text: &str) {
        self.0.push('\n');
        self.line(0, text);
    }

    /// Appends a table, indented by `depth` levels, with columns as wide as needed. Those whose head begins with `>` are
    /// right-aligned.
    pub(crate) fn table(
        &mut self,
        depth: usize,
        heads: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) {
        let right: Vec<bool> = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let cells =
            |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
        let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).map(cells).collect();
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..right.len()).map(|at| width(at).unwrap_or(0)).collect();
        for row in &rows {
            let mut line = String::new();
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&right) {
                // Writing to a String cannot fail.
                let _ = match right {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            self.line(depth, line.trim_end());
        }
    }
}
