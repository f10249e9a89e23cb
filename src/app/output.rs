//! Writing to standard output and standard error.

use std::io::Write;
use std::process::ExitCode;

use crate::status::words::printable;
use crate::tools::CommandError;

/// The outcome of a command that looks for something. It is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Clean,
    /// A difference, a failed check or a missing part.
    Findings,
    /// There is no result.
    Failed,
}

/// Returns the exit code of a command that looks for something, and prints its error.
pub(crate) fn exit_code(outcome: Result<Outcome, CommandError>) -> ExitCode {
    let outcome = outcome.unwrap_or_else(|error| {
        let text = format!("error: {error}");
        text.split('\n').for_each(|line| print_error(&printable(line)));
        Outcome::Failed
    });
    ExitCode::from(outcome as u8)
}

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
