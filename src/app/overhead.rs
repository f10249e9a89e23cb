//! `kstatd overhead`: flags to samples, samples to a table.

use super::output::print;
use crate::cli::overhead::OverheadArgs;
use crate::tools::overhead::{Samples, Subject, sample, table};

/// Samples, and prints what came of it.
///
/// # Errors
///
/// What cannot be measured, or a file that cannot be used.
pub(crate) fn main(args: OverheadArgs) -> Result<(), String> {
    let OverheadArgs { pids, comms, cgroups, every, total, baseline, save, json } = args;
    // A file that cannot be used is said before a minute is over.
    let baseline = baseline.map(|path| Samples::load(&path)).transpose()?;
    let samples = sample(&Subject { pids, comms, cgroups }, every, total)?;
    if let Some(path) = save {
        let written = std::fs::write(&path, samples.json());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    print(&if json { samples.json() } else { table(&samples, baseline.as_ref()) });
    Ok(())
}
