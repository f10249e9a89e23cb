//! The `kstatd overhead` command.

use super::output::written;
use crate::cli::native::OverheadArgs;
use crate::tools::CommandError;
use crate::tools::overhead::{Samples, sample, table};

/// Takes samples and prints a table of them.
///
/// # Errors
///
/// Returns an error if a process cannot be measured or a file cannot be used.
pub(crate) fn main(args: OverheadArgs) -> Result<(), CommandError> {
    let OverheadArgs { baseline, save, output, .. } = &args;
    if output.is_json() && baseline.is_some() {
        return Err("--baseline compares in a table; JSON has the samples of this run only".into());
    }
    // Report an unusable file before sampling for a minute.
    let baseline = baseline.as_deref().map(Samples::load).transpose()?;
    let samples = sample(&args)?;
    if let Some(path) = save {
        let written = std::fs::write(path, samples.json());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    written(&if output.is_json() { samples.json() } else { table(&samples, baseline.as_ref()) })
}
