//! The `kstatd cardinality suggest` command.

use std::path::Path;

use super::access::{access, run_command};
use super::output::written;
use crate::cli::native::SuggestArgs;
use crate::config_file;
use crate::mapper::{Mapper, Problem};
use crate::tools::CommandError;
use crate::tools::cardinality::{self, Captured, Session};

/// Prints suggested rules, or the effect of the rules given by `--dry-run`.
///
/// # Errors
/// Returns an error if a file cannot be read or parsed, or if the process does not respond.
pub(crate) fn suggest(args: SuggestArgs) -> Result<(), CommandError> {
    let statsd = &args.statsd.0;
    let in_use = match statsd.mapping_config.as_str() {
        "" => String::new(),
        path => mapping(Path::new(path))?,
    };
    let rules = args.dry_run.as_deref().map(mapping).transpose()?;
    let captured = match args.addr {
        Some(address) => {
            let access = access(args.access)?;
            run_command(Captured::exposition(&address, access))?
        }
        None => Captured::lines(&args.file, statsd.parser_flags())?,
    };
    let mut session = Session { captured, mapping: in_use };
    written(&match rules {
        Some(rules) => cardinality::try_rules(&mut session, &rules)?,
        None => cardinality::suggest(&mut session, args.min_values as usize)?,
    })
}

/// Reads and validates a mapping file.
fn mapping(path: &Path) -> Result<String, CommandError> {
    let named = |reason: String| format!("{}: {reason}", path.display());
    let text = config_file::read(path).map_err(|error| named(error.to_string()))?;
    Mapper::from_yaml(&text).map_err(|problems| named(Problem::list(&problems)))?;
    Ok(text)
}
