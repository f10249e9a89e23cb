//! Writing to standard output and standard error.

use std::io::Write;
use std::process::ExitCode;

use crate::tools::CommandError;

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            print_error(&format!("cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes to standard output like [`print()`].
///
/// # Errors
/// The text could not be written.
pub(crate) fn written(text: &str) -> Result<(), CommandError> {
    match print(text) {
        ExitCode::SUCCESS => Ok(()),
        _ => Err("cannot write to standard output".into()),
    }
}

/// Writes a line to standard error; failures are ignored.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
