//! Redraws a screen on a terminal.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Returns the rows and columns of the terminal on standard output, if it is one and reports them.
pub(crate) fn size() -> Option<(usize, usize)> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the pointer is to a `winsize`, which TIOCGWINSZ fills in and which is valid when
    // zeroed.
    let size = unsafe {
        if libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) != 0 {
            return None;
        }
        size.assume_init()
    };
    let is_known = size.ws_row > 0 && size.ws_col > 0;
    is_known.then(|| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Returns the escape sequences that draw a text over the previous one, clipped to the screen.
pub(crate) fn fit_to_screen(text: &str, (rows, columns): (usize, usize)) -> String {
    let mut out = "\u{1b}[H".to_owned();
    for line in text.lines().take(rows.saturating_sub(1)) {
        out.extend(line.chars().take(columns));
        // Erase the rest of the line.
        out.push_str("\u{1b}[K\n");
    }
    out.push_str("\u{1b}[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screens_are_truncated_to_the_terminal() {
        let fit_to_screen = fit_to_screen("abcdef\ng\nh\ni\n", (3, 4));
        assert_eq!(fit_to_screen, "\u{1b}[Habcd\u{1b}[K\ng\u{1b}[K\n\u{1b}[J");
    }
}
