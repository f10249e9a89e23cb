//! `kstatd bundle`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::access::{self, run_command};
use super::output::{Outcome, print};
use crate::cli::asking::BundleArgs;
use crate::status::words::printable_lines;
use crate::tools::CommandError;
use crate::tools::bundle::{self, Bundle};

/// Writes the archive and lists its contents.
///
/// # Errors
/// Returns an error if there is no archive.
pub(super) fn main(args: BundleArgs) -> Result<Outcome, CommandError> {
    let BundleArgs { file, hash_names, telemetry_addr, output, process } = args;
    let now = jiff::Timestamp::now();
    let folder = format!("kstatd-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = file.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let parts = run_command(async {
        let subject = access::subject(process, telemetry_addr).await?;
        Ok(bundle::collect(subject).await)
    })?;
    let time = now.as_second().unsigned_abs();
    let bundle = Bundle::pack(parts, &folder, time, hash_names)?;
    create(&path, &bundle.bytes)?;
    let path = path.display().to_string();
    if output.is_json() {
        let mut list = bundle.list;
        list["file"] = path.into();
        print(&crate::status::words::json_line(&list));
    } else {
        let text = format!("{path} contains\n{}", bundle.text());
        print(&printable_lines(&text));
    }
    Ok(if bundle.is_complete { Outcome::Clean } else { Outcome::Findings })
}

/// Creates a file that only its owner may read. If it cannot be written completely, for example to a full disk, none is left.
fn create(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(bytes).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    });
    written.map_err(|error| format!("{}: {error}", path.display()).into())
}
